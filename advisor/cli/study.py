"""`tuning-advisor study …`: submit, follow, cancel, judge and report studies from a shell."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from advisor import units
from advisor.cli import study_gate
from advisor.cli.api_client import ApiClient
from advisor.cli.errors import CliError

POLL_S = 1.0
TERMINAL = ("finished", "cancelled")
EXIT_BY_VERDICT = {"met": 0, "no_targets": 0, "missed": 1, "not_proven": 3, "no_verdict": 3}
REPORT_FORMATS = ("html", "pdf", "md", "json", "csv", "requests")

EXPORT_FORMATS = ("vllm", "sglang", "compose", "kubernetes", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    submit = actions.add_parser("submit", help="submit a study from a YAML or JSON file")
    submit.add_argument("file", type=Path)
    submit.add_argument("--wait", action="store_true", help="follow it; exit by its verdict")
    submit.add_argument("--json", action="store_true", help="print the study as JSON")
    wait = actions.add_parser("wait", help="follow a study; exit by its verdict")
    wait.add_argument("id")
    wait.add_argument("--json", action="store_true")
    cancel = actions.add_parser("cancel", help="cancel what has not finished; results are kept")
    cancel.add_argument("id")
    cancel.add_argument(
        "--trial", type=int, metavar="N", help="only this trial; the study goes on without it"
    )
    show = actions.add_parser("show", help="verdict, targets, findings and trials of a study")
    show.add_argument("id")
    show.add_argument("--json", action="store_true")
    gate = actions.add_parser("gate", help="pass or stop a pipeline by a finished study")
    study_gate.add_arguments(gate)
    report = actions.add_parser("report", help="download the report")
    report.add_argument("id")
    report.add_argument(
        "--format",
        choices=REPORT_FORMATS,
        default="html",
        help="csv: a line for each trial; requests: CSV with a line for each request",
    )
    report.add_argument("-o", "--output", type=Path, default=None, help="else standard output")
    export = actions.add_parser("export", help="download a configuration to serve")
    export.add_argument("id")
    export.add_argument(
        "--format",
        choices=EXPORT_FORMATS,
        default="vllm",
        help="a shell command, a service of docker compose, objects of Kubernetes, or data",
    )
    export.add_argument(
        "--engine", choices=("vllm", "sglang"), help="for compose, kubernetes, json"
    )
    export.add_argument("--engine-version", help="the measured one by default, else the newest")
    export.add_argument("--trial", type=int, help="number of a trial; else what is recommended")
    export.add_argument("-o", "--output", type=Path, default=None, help="else standard output")


def run(args: argparse.Namespace) -> int:
    client = ApiClient.from_environment()
    console = Console()
    if args.action == "report":
        content = client.get_bytes(f"studies/{args.id}/report", format=args.format)
        return _write(content, args.output)
    if args.action == "export":
        return _write(
            client.get_bytes(f"studies/{args.id}/export", **_export_choice(args)), args.output
        )
    if args.action == "gate":
        return study_gate.run(args, client, console)
    if args.action == "submit":
        study = client.post("studies", read_spec(args.file))
        if args.wait:
            study = _followed(client, study["id"])
        elif not args.json:
            console.print(f"Study {study['number']} {study['id']}\n{study['urls']['dashboard']}")
            return 0
    elif args.action == "cancel" and args.trial is not None:
        return _cancel_trial(client, args.id, args.trial, console)
    elif args.action == "cancel":
        study = client.post(f"studies/{args.id}/cancel")
        done = study["progress"]
        console.print(
            f"Study {study['number']} is cancelled; {done['trials_succeeded']} of"
            f" {done['trials_total']} trials finished and are kept.",
            highlight=False,
        )
        return 0
    elif args.action == "wait":
        study = _followed(client, args.id)
    else:
        study = client.get(f"studies/{args.id}")
    if args.json:
        print(json.dumps(study, indent=2))
    else:
        show_study(client, study, console)
    waited = args.action != "submit" or args.wait
    return EXIT_BY_VERDICT[study["verdict"]["status"]] if waited else 0


def _cancel_trial(client: ApiClient, study_id: str, number: int, console: Console) -> int:
    trials = client.get(f"studies/{study_id}/trials", limit="200")["results"]
    found = next((trial for trial in trials if trial["ordinal"] == number), None)
    if found is None:
        known = f"1 to {len(trials)}" if trials else "none yet"
        raise CliError(f"the study has no trial {number}; its trials: {known}")
    trial = client.post(f"trials/{found['id']}/cancel")
    ended = "is cancelled" if trial["state"] == "cancelled" else "ends when its agent hears of it"
    console.print(f"Trial {number} {ended}; the study goes on without it.", highlight=False)
    return 0


def _export_choice(args: argparse.Namespace) -> dict[str, str]:
    chosen = {name: getattr(args, name) for name in ("format", "engine", "engine_version", "trial")}
    return {name: str(value) for name, value in chosen.items() if value is not None}


def _followed(client: ApiClient, study_id: str) -> Any:
    """`follow`; Ctrl-C leaves the study running and says how to go on or to end it."""
    console = Console(stderr=True)
    try:
        return follow(client, study_id, console)
    except KeyboardInterrupt:
        console.print(
            f"The study goes on. Follow it again: tuning-advisor study wait {study_id}\n"
            f"Cancel it: tuning-advisor study cancel {study_id}",
            highlight=False,
        )
        raise


def read_spec(path: Path) -> Any:
    """The file's content; JSON is a subset of YAML. Raises CliError naming file and line."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}") from error
    try:
        spec = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CliError(f"{path} is no YAML: {error}") from error
    if not isinstance(spec, dict):
        raise CliError(f"{path} holds no study: it must be a mapping with name, model, workload")
    return spec


def follow(client: ApiClient, study_id: str, console: Console) -> Any:
    """Show progress until the study ends; return it. Survives a server that restarts."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
    )
    misses = 0
    last_text = ""
    with progress:
        task = progress.add_task("waiting", total=1.0, left="")
        while True:
            try:
                study = client.get(f"studies/{study_id}")
                misses = 0
            except CliError:
                misses += 1
                if misses > 60:
                    raise
                time.sleep(POLL_S)
                continue
            done = study["progress"]
            text = _now(study)
            left = done["remaining_s"]
            progress.update(
                task,
                completed=done["done_frac"],
                description=escape(text),
                left="" if not left else f"about {units.seconds(left)} left",
            )
            if not console.is_terminal and text != last_text:
                console.print(f"{done['done_frac']:4.0%} {escape(text)}", highlight=False)
                last_text = text
            if study["state"] in TERMINAL:
                return study
            time.sleep(POLL_S)


def _now(study: dict[str, Any]) -> str:
    progress = study["progress"]
    current = progress["current"]
    if current is None:
        return f"{study['phase']}: trial {progress['trials_done']} of {progress['trials_total']}"
    return (
        f"Trial {current['ordinal']} of {progress['trials_total']}, {current['title']}:"
        f" {current['text'] or current['phase']}"
    )


def show_study(client: ApiClient, study: dict[str, Any], console: Console) -> None:
    """Print verdict, targets, findings and recommended settings."""
    verdict = study["verdict"]
    console.print(f"\n[bold]{escape(verdict['sentence'])}[/bold]", highlight=False)
    if verdict["lede"]:
        console.print(escape(verdict["lede"]), highlight=False)
    for target in verdict["targets"]:
        console.print(f"  {escape(_target(target))}", highlight=False)
    findings = client.get(f"studies/{study['id']}/findings")["results"]
    shown = [f for f in findings if f["verdict"] in ("fail", "cannot_tell", "informative", "pass")]
    console.print("\n[bold]Findings[/bold]")
    for finding in shown:
        console.print(f"  {finding['verdict']:11}  {escape(finding['title'])}", highlight=False)
    console.print("\n[bold]Recommended settings[/bold]")
    if verdict["changes"]:
        for knob, change in verdict["changes"].items():
            console.print(
                f"  {knob}: {change['current']} → {change['recommended']}", highlight=False
            )
        console.print(f"  {escape(verdict['verification']['sentence'])}", highlight=False)
    else:
        console.print("  Keep the current settings: no measured trial was better.")


def _target(target: dict[str, Any]) -> str:
    name = units.METRIC_NAMES[target["metric"]]
    sign = "≥" if target["metric"] == "output_tok_s" else "≤"
    value = units.metric(target["metric"], target["value"])
    interval = ""
    if target["low"] is not None and target["high"] is not None:
        low, high = (units.metric(target["metric"], target[key]) for key in ("low", "high"))
        interval = f" (95 % interval {low} to {high}, n = {target['n']})"
    verdict = target["verdict"].replace("_", " ")
    limit = units.metric(target["metric"], target["limit"])
    line = f"{name} {target['statistic']} {sign} {limit}: {verdict}"
    if target["value"] is None:
        return f"{line}. {target['reason']}"
    line += f", {value}{interval}"
    return line + (f". {target['reason']}" if target["verdict"] != "met" else "")


def _write(content: bytes, output: Path | None) -> int:
    if output is None:
        sys.stdout.buffer.write(content)
        return 0
    try:
        output.write_bytes(content)
    except OSError as error:
        raise CliError(f"{output} cannot be written: {error.strerror}") from error
    return 0

"""`python -m gpuagent register | run | calibrate | doctor | once SPEC.json | shape CONFIG | load |
robustness | mock`."""

from __future__ import annotations

import argparse
import json
import logging
import re
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from gpuagent.client import AdvisorClient, ClientError
from gpuagent.config import (
    AgentConfig,
    Identity,
    load_config,
    read_identity,
    server_url,
    write_identity,
)
from gpuagent.errors import ConfigError
from gpuagent.load import options as load_options
from gpuagent.wire import ConfigModel, TrialEvent, TrialSpec
from gpuagent.wire.ceilings import CEILING_UNITS

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a wrong setting is one line on stderr and exit code 2."""
    args = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for noisy in ("httpx", "celery.app.trace", "celery.worker.strategy"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        code: int = args.run(args, load_config())
    except ConfigError as error:
        print(f"gpuagent {args.command}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuagent", description="Runs trials for the advisor.")
    parser.add_argument("-v", "--verbose", action="store_true")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    register = commands.add_parser("register", help="join a server with a one-time token")
    register.add_argument("--server", required=True, help="address of the dashboard")
    register.add_argument("--token", required=True, help="one-time registration token (tar_…)")
    register.add_argument("--name", default=None, help="name of this agent; default: host name")
    register.add_argument(
        "--no-calibrate", action="store_true", help="do not measure the device's ceilings now"
    )
    register.set_defaults(run=_register)

    calibrate = commands.add_parser("calibrate", help="measure what this device can do at most")
    calibrate.add_argument("--json", action="store_true")
    calibrate.set_defaults(run=_calibrate)

    run = commands.add_parser("run", help="work: claim trials, run them, report")
    run.set_defaults(run=_run)

    doctor = commands.add_parser("doctor", help="say what works and how to fix the rest")
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(run=_doctor)

    once = commands.add_parser("once", help="run one trial from a file, without a server")
    once.add_argument("spec", type=Path, help="a TrialSpec as JSON")
    once.add_argument("-o", "--output", type=Path, default=None, help="write the outcome here")
    once.set_defaults(run=_once)

    shape = commands.add_parser(
        "shape", help="count a model's parameters by its transformers class"
    )
    shape.add_argument("config", type=Path, help="config.json, or a folder that holds one")
    shape.set_defaults(run=_shape)

    load_options.add_parsers(commands)
    return parser


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-")
    return slug or "agent"


def _calibrate(args: argparse.Namespace, config: AgentConfig) -> int:
    from gpuagent import calibration

    found = calibration.calibrate(config, _show_event)
    if args.json:
        print(found.model_dump_json(indent=2))
        return EXIT_OK
    for entry in found.entries:
        value = entry.rate.value
        unit = CEILING_UNITS.get(entry.kind, "B/s")
        text = f"{value:.3g} {unit}" if value is not None else f"- ({entry.rate.reason})"
        print(f"{entry.kind + ' ' + entry.variant:24} {text}")
    return EXIT_OK


def _register(args: argparse.Namespace, config: AgentConfig) -> int:
    from gpuagent import calibration, environment

    address = server_url(args.server)
    slug = _slug(args.name or socket.gethostname())
    client = AdvisorClient(address)
    try:
        reply = client.register(
            token=args.token, slug=slug, hello=environment.build_hello(config.model_roots)
        )
    except ValidationError as error:
        raise ConfigError("the token is too short: copy it whole from the dashboard") from error
    except ClientError as error:
        raise ConfigError(f"{address} did not register this agent: {error}") from error
    finally:
        client.close()
    write_identity(
        config,
        Identity(
            server_url=address,
            slug=reply.slug,
            credential=reply.credential,
            broker_url=reply.broker_url,
        ),
    )
    if not args.no_calibrate:
        try:
            # The next claim carries them to the server.
            calibration.calibrate(config, _show_event)
        except ConfigError as error:
            print(f"gpuagent register: {error}; try gpuagent calibrate", file=sys.stderr)
    print(f"Registered as {reply.slug}. Next: python -m gpuagent run")
    return EXIT_OK


def _run(args: argparse.Namespace, config: AgentConfig) -> int:
    from gpuagent.daemon import serve

    return serve(config, read_identity(config))


def _doctor(args: argparse.Namespace, config: AgentConfig) -> int:
    from rich.console import Console

    from gpuagent import doctor

    identity = read_identity(config) if config.identity_path.exists() else None
    # Shown on a terminal alone, and never among the answers.
    with Console(stderr=True).status("Checking") as status:
        checks = doctor.run(
            state_dir=config.state_dir,
            model_roots=config.model_roots,
            broker_url=config.broker_url or (identity.broker_url if identity else None),
            server_url=identity.server_url if identity else None,
            credential=identity.credential if identity else None,
            on_start=lambda name: status.update(f"Checking {name}"),
        )
    if args.json:
        print(json.dumps([check.to_dict() for check in checks], indent=2))
    else:
        for check in checks:
            print(check.line())
    return EXIT_FAILED if any(check.state == "fail" for check in checks) else EXIT_OK


def _once(args: argparse.Namespace, config: AgentConfig) -> int:
    from gpuagent.isolate import TrialProcess

    try:
        spec = TrialSpec.model_validate_json(args.spec.read_bytes())
    except OSError as error:
        raise ConfigError(f"{args.spec} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(f"{args.spec}: {where}: {first['msg']}") from error
    with tempfile.TemporaryDirectory(prefix="gpuagent-once-") as folder:
        process = TrialProcess.start(spec, Path(folder), model_roots=config.model_roots)
        try:
            while not process.wait(0.2):
                _show(process)
            _show(process)
            outcome = process.outcome()
        finally:
            process.kill()
    text = outcome.model_dump_json(indent=2)
    if args.output:
        args.output.write_text(text)
    else:
        print(text)
    if outcome.failure is not None:
        print(f"failed: {outcome.failure.message}", file=sys.stderr)
    return EXIT_OK if outcome.status == "succeeded" else EXIT_FAILED


def _shape(args: argparse.Namespace, config: AgentConfig) -> int:
    """For architectures that the server's own formulas do not know."""
    from gpuagent.errors import AgentError
    from gpuagent.models import resolve

    path = args.config / "config.json" if args.config.is_dir() else args.config
    try:
        model = ConfigModel(name=path.parent.name or "model", config=json.loads(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no config.json: {str(error).splitlines()[0]}") from error
    try:
        resolved = resolve(model, ())
        from gpuagent.engines.hf_loading import count_on_meta

        architecture, params = count_on_meta(resolved)
    except AgentError as error:
        raise ConfigError(error.message) from error
    except ImportError as error:
        raise ConfigError(f"torch and transformers are needed: {error}") from error
    answer = {
        "architecture": architecture,
        "params": params,
        "weight_bytes": {"float32": 4 * params, "bfloat16": 2 * params},
        "source": "transformers class on the meta device",
    }
    print(json.dumps(answer, indent=2))
    return EXIT_OK


def _show(process: object) -> None:
    for event in process.poll_events():  # type: ignore[attr-defined]
        _show_event(event)


def _show_event(event: TrialEvent) -> None:
    share = f"{event.done_frac:4.0%} " if event.done_frac is not None else ""
    print(f"{event.phase:8} {share}{event.message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

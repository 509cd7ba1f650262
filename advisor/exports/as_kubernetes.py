"""The configuration as Kubernetes objects: a claim for the model cache, Deployment, Service."""

from __future__ import annotations

import math
from typing import Any

from advisor.exports import sizes
from advisor.exports.document import MODELS_FOLDER, ExportDocument
from advisor.exports.header import header
from advisor.exports.text import comments, escape_dollars, object_name, yaml_text


def to_kubernetes(document: ExportDocument) -> bytes:
    """Three objects for `kubectl apply -f`. A token comes from the Secret `hf-token`, if any."""
    name = _name(document)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": document.engine}
    selector = {"app.kubernetes.io/name": name}
    objects = (_claim(document, name, labels), _deployment(document, name, labels, selector))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": selector,
            "ports": [{"name": "http", "port": sizes.PORT, "targetPort": "http"}],
        },
    }
    lines = [*header(document), *sizes.notes(document), *_needs(document)]
    return (comments(lines) + yaml_text(*objects, service)).encode()


def _name(document: ExportDocument) -> str:
    """A letter first, because the name of a Service must start with one."""
    return f"{document.engine}-{object_name(document.model.name)}"


def _needs(document: ExportDocument) -> list[str]:
    lines = [
        "Needs NVIDIA's device plugin. A gated model needs a Secret hf-token with a key token."
    ]
    if document.model.kind == "local":
        lines.append(
            f"The claim models must hold the model's folder; it is mounted as {MODELS_FOLDER}."
        )
    return lines


def _claim(document: ExportDocument, name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-cache", "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{sizes.cache_gib(document)}Gi"}},
        },
    }


def _deployment(
    document: ExportDocument, name: str, labels: dict[str, str], selector: dict[str, str]
) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [{"name": "cache", "mountPath": sizes.HF_CACHE}]
    volumes: list[dict[str, Any]] = [
        {"name": "cache", "persistentVolumeClaim": {"claimName": f"{name}-cache"}}
    ]
    if document.model.kind == "local":
        mounts.append({"name": "models", "mountPath": MODELS_FOLDER, "readOnly": True})
        volumes.append({"name": "models", "persistentVolumeClaim": {"claimName": "models"}})
    shm = sizes.shm_bytes(document)
    if shm is not None:
        size = f"{shm // sizes.GIB}Gi"
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - in the container
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
    pod = {
        "terminationGracePeriodSeconds": sizes.grace_s(document),
        # A Service called vllm would set VLLM_PORT in its own pods, which vLLM reads as a number.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [_container(document, mounts)],
        "volumes": volumes,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            # A second pod beside the old one would wait for GPUs that the old one holds.
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": math.ceil(sizes.start_limit_s(document)) + 600,
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _container(document: ExportDocument, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    gpus = document.sizing.gpus
    start = math.ceil(sizes.start_limit_s(document) / sizes.STARTUP_PERIOD_S)
    return {
        "name": document.engine,
        "image": document.image,
        "command": escape_dollars([*document.argv, *sizes.listen_words()]),
        "ports": [{"name": "http", "containerPort": sizes.PORT}],
        "env": [
            {
                "name": "HF_TOKEN",
                "valueFrom": {
                    "secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}
                },
            }
        ],
        "resources": {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}},
        "startupProbe": _probe(sizes.STARTUP_PERIOD_S, start),
        "readinessProbe": _probe(sizes.READINESS_PERIOD_S, 2),
        "livenessProbe": _probe(sizes.LIVENESS_PERIOD_S, sizes.LIVENESS_FAILURES),
        # Until the endpoint has left every router, new requests still arrive.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(sizes.DRAIN_S)]}}},
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": mounts,
    }


def _probe(period_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": sizes.PROBE_TIMEOUT_S,
        "failureThreshold": failures,
    }

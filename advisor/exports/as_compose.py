"""The configuration as a service of docker compose."""

from __future__ import annotations

import math
from typing import Any

from advisor.exports import sizes
from advisor.exports.document import MODELS_FOLDER, ExportDocument
from advisor.exports.header import header
from advisor.exports.text import comments, escape_dollars, object_name, yaml_text


def to_compose(document: ExportDocument) -> bytes:
    """One file: `docker compose -f FILE up`. No secret stands in it."""
    name = object_name(document.engine)
    local = document.model.kind == "local"
    argv = [*document.argv, *sizes.listen_words()]
    service: dict[str, Any] = {
        "image": document.image,
        # The image's own entrypoint differs from version to version; this one is what was checked.
        "entrypoint": escape_dollars(argv),
        # Without authentication of its own the engine answers on this host alone.
        "ports": [f"127.0.0.1:{sizes.PORT}:{sizes.PORT}"],
        # Handed on from the caller's environment where it is set there.
        "environment": ["HF_TOKEN"],
        "volumes": [f"hf-cache:{sizes.HF_CACHE}"]
        + ([f"${{MODELS_DIR:-./models}}:{MODELS_FOLDER}:ro"] if local else []),
        "restart": "unless-stopped",
        "stop_grace_period": f"{sizes.grace_s(document)}s",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", sizes.HEALTH_CODE],
            "interval": f"{sizes.LIVENESS_PERIOD_S}s",
            "timeout": f"{sizes.PROBE_TIMEOUT_S}s",
            "retries": sizes.LIVENESS_FAILURES,
            "start_period": f"{math.ceil(sizes.start_limit_s(document))}s",
        },
        "deploy": {
            "resources": {
                "reservations": {
                    "devices": [
                        {
                            "driver": "nvidia",
                            "count": document.sizing.gpus,
                            "capabilities": ["gpu"],
                        }
                    ]
                }
            }
        },
    }
    shm = sizes.shm_bytes(document)
    if shm is not None:
        service["shm_size"] = f"{shm // 1024**3}gb"
    body = yaml_text({"services": {name: service}, "volumes": {"hf-cache": None}})
    return (comments([*header(document), *sizes.notes(document)]) + body).encode()

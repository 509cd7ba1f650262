#!/usr/bin/env bash
# Checks the experiments on a CUDA device in less than 8 minutes: tests/gpu, then a short study of
# a 1.2 B model through `python -m gpuagent once`. Everything that was measured is left as JSON
# below $OUT (default: ./gpu-check). Needs torch with CUDA and transformers; no Django, no server.
set -u
cd "$(dirname "$0")/.."
export OUT="${OUT:-$PWD/gpu-check}" PYTHONPATH="$PWD" GPUAGENT_STATE_DIR
mkdir -p "$OUT"
OUT="$(cd "$OUT" && pwd)"
GPUAGENT_STATE_DIR="$OUT/state"
python="${PYTHON:-python3}"

needed="pydantic psutil numpy httpx platformdirs pytest safetensors"
missing=""
for package in $needed; do
  "$python" -c "import $package" 2>/dev/null || missing="$missing $package"
done
"$python" -c "import pynvml" 2>/dev/null || missing="$missing nvidia-ml-py"
if [ -n "$missing" ]; then
  # shellcheck disable=SC2086
  "$python" -m pip install --quiet $missing || echo "could not install:$missing" >&2
fi
if ! "$python" -c "import torch, transformers, pydantic, psutil, numpy" 2>"$OUT/imports.txt"; then
  echo "gpu_check: a package is missing: $(tail -n 1 "$OUT/imports.txt")" >&2
  exit 2
fi
"$python" - >"$OUT/device.json" <<'PY'
import json, platform
import torch, transformers
cuda = torch.cuda.is_available()
print(json.dumps({
    "python": platform.python_version(),
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "transformers": transformers.__version__,
    "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    "reason": None if cuda else "torch sees no CUDA device",
}, indent=1))
PY
cat "$OUT/device.json"

timeout 330 "$python" -m pytest -c /dev/null --rootdir "$PWD" --noconftest -p no:cacheprovider \
  -q -rs --import-mode=importlib --junitxml "$OUT/tests.xml" tests/gpu
tests=$?

if ! "$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then
  echo "gpu_check: torch sees no CUDA device; the tests were skipped and no study was run" >&2
  exit 3
fi

"$python" - "$OUT" <<'PY'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
config = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
          "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
          "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 8192,
          "tie_word_embeddings": True, "dtype": "bfloat16"}
base = {"model": {"kind": "config", "name": "llama-1b", "config": config},
        "settings": {"dtype": "bfloat16"},
        "workload": {"preset": "chat", "input_tokens": {"mean": 128},
                     "output_tokens": {"mean": 32}, "requests": 10},
        "timeout_s": 60}
for index, experiment in enumerate(("calibrate", "baseline", "batching"), 1):
    spec = base | {"trial_id": f"00000000-0000-4000-8000-{index:012d}",
                   "config": {"experiment": experiment}}
    (out / f"spec-{experiment}.json").write_text(json.dumps(spec))
PY
study=0
for experiment in calibrate baseline batching; do
  timeout 75 "$python" -m gpuagent once "$OUT/spec-$experiment.json" \
    -o "$OUT/study-$experiment.json" 2>"$OUT/study-$experiment.log" || study=1
  tail -n 1 "$OUT/study-$experiment.log"
done
echo "tests: $tests, study: $study, results in $OUT"
[ "$tests" -eq 0 ] && [ "$study" -eq 0 ]

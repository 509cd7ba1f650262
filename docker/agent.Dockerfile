# An agent. Register it once with its state folder mounted, then run it:
#   docker run --rm --gpus all -v gpuagent:/state IMAGE register --server URL --token tar_...
#   docker run -d  --gpus all --pid host -v gpuagent:/state -v /models:/models:ro IMAGE
# The host's PID namespace lets NVML tell our processes from foreign ones.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 GPUAGENT_STATE_DIR=/state GPUAGENT_MODEL_DIRS=/models
WORKDIR /app
COPY pyproject.toml constraints.txt README.md ./
COPY advisor/__init__.py advisor/__init__.py
COPY gpuagent gpuagent
RUN pip install -c constraints.txt -e '.[agent,load]' && mkdir -p /state /models
VOLUME /state
ENTRYPOINT ["python", "-m", "gpuagent"]
CMD ["run"]

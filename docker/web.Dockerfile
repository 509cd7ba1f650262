# The server: web, worker and beat share this image; the command decides which one runs.
FROM python:3.11-slim

# Chromium prints PDF reports. Its own sandbox cannot start in an ordinary container, which is one
# itself; the printed page is the server's own, without script and network.
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 ADVISOR_DATA_DIR=/data ADVISOR_CHROMIUM_FLAGS=--no-sandbox
RUN apt-get update \
    && apt-get install -y --no-install-recommends chromium fonts-dejavu-core fonts-noto-cjk \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY pyproject.toml constraints.txt README.md manage.py ./
COPY advisor advisor
COPY gpuagent gpuagent
COPY templates templates
COPY static static
RUN pip install -c constraints.txt -e '.[web]' \
    && useradd --system --uid 10001 advisor && mkdir /data && chown advisor /data
COPY docker/entrypoint.sh /usr/local/bin/entrypoint
USER advisor
VOLUME /data
EXPOSE 8000
ENTRYPOINT ["entrypoint"]
CMD ["web"]

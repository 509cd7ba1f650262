#!/bin/sh
# web | worker | beat | any manage.py command
set -eu
case "${1:-web}" in
  web)
    python manage.py migrate --noinput
    python manage.py collectstatic --noinput --verbosity 0
    exec gunicorn advisor.wsgi:application --bind 0.0.0.0:8000 --worker-class gthread \
      --workers "${WEB_WORKERS:-2}" --threads 8 --timeout 60 --keep-alive 75 --access-logfile -
    ;;
  worker)
    exec celery -A advisor.celery worker -Q advisor --concurrency "${WORKER_CONCURRENCY:-2}" \
      --without-gossip --without-mingle --loglevel INFO
    ;;
  beat)
    exec celery -A advisor.celery beat --loglevel INFO --pidfile /tmp/beat.pid
    ;;
  *)
    exec python manage.py "$@"
    ;;
esac

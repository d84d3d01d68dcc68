# Two stages: packages are installed in the first, the second holds only what runs. One image, several commands:
#   advisor serve (default) | python -m workers.run | python -m workers.bots | advisor admin migrate
FROM python:3.11-slim-trixie AS build
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv --without-pip /opt/advisor \
 && pip --python /opt/advisor/bin/python install --no-cache-dir -r requirements.txt
COPY pyproject.toml README.md ./
COPY service ./service
COPY docs ./docs
COPY workers ./workers
RUN pip --python /opt/advisor/bin/python install --no-cache-dir --no-deps .

FROM python:3.11-slim-trixie
# pg_dump and pg_restore, of the major version of the server in compose.yaml: for `advisor admin backup` and `restore`.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends postgresql-client-17 \
 && rm --recursive /var/lib/apt/lists \
 && useradd --system --create-home --home-dir /var/lib/advisor advisor \
 && install --directory --owner advisor /var/cache/advisor \
 && install --directory --owner advisor --mode 700 /var/backups/advisor
COPY --from=build /opt/advisor /opt/advisor
ENV PATH=/opt/advisor/bin:$PATH ADVISOR_STATE_DIR=/var/lib/advisor ADVISOR_HOST=0.0.0.0
USER advisor
WORKDIR /var/lib/advisor
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('ADVISOR_PORT', '8000') + '/health', timeout=4)"]
CMD ["advisor", "serve"]

# Two stages: wheels are built in the first, the second holds only what runs. One image, several commands:
#   advisor serve (default) | python -m workers.run
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml requirements.txt README.md ./
COPY service ./service
COPY workers ./workers
RUN python -m venv /opt/advisor \
 && /opt/advisor/bin/pip install --no-cache-dir -r requirements.txt \
 && /opt/advisor/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
RUN useradd --system --create-home --home-dir /var/lib/advisor advisor \
 && install --directory --owner advisor /var/cache/advisor
COPY --from=build /opt/advisor /opt/advisor
ENV PATH=/opt/advisor/bin:$PATH ADVISOR_STATE_DIR=/var/lib/advisor ADVISOR_HOST=0.0.0.0
USER advisor
WORKDIR /var/lib/advisor
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
CMD ["advisor", "serve"]

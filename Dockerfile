# The image of compose.yaml: the command `satchel` with every store's driver, of the versions that the tests run with.
FROM python:3.11-slim

WORKDIR /build
COPY pyproject.toml README.md ./
COPY requirements/dev.lock requirements/
COPY src src
# The lock file pins what the tests need too, so it bounds the versions here instead of naming what is installed.
RUN sed -n 's/^\([A-Za-z0-9._-]*==[^\\]*[^ \\]\) *\\$/\1/p' requirements/dev.lock > constraints.txt \
    && pip install --no-cache-dir --constraint constraints.txt '.[cli,server,jwt,otel,openai,postgres,mysql,redis]' \
    && rm -rf /build/* \
    && useradd --create-home --uid 10001 satchel

USER satchel
# The key that the first start makes is written here; the modules that --agent names are looked for in /agents too.
WORKDIR /home/satchel
ENV PYTHONPATH=/agents
ENV SATCHEL_HOST=0.0.0.0
EXPOSE 8321
ENTRYPOINT ["satchel"]
CMD ["serve"]

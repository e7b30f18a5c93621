# The jobs' image: EMR's own for the release, with the lake's code and packages. The tag is the release's label.
ARG RELEASE
FROM public.ecr.aws/emr-serverless/spark/${RELEASE}:latest
USER root
WORKDIR /opt/strandline
COPY pyproject.toml README.md requirements/all.lock ./
RUN python3 -m pip install --no-cache-dir uv==0.13.7 \
 && uv pip compile pyproject.toml --extra ingest --extra notes --extra query --extra vectors --constraint all.lock --generate-hashes -q -o image.lock \
 && uv pip install --system --no-cache --require-hashes --compile-bytecode -r image.lock
COPY catalog ./catalog
COPY spark_jobs ./spark_jobs
RUN python3 -m compileall -q --invalidation-mode unchecked-hash catalog spark_jobs
ENV PYTHONPATH=/opt/strandline
USER hadoop:hadoop

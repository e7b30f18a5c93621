# The jobs' image: EMR's own for the release, with the lake's code and packages. The tag is the release's label.
# BASE with a digest (name@sha256:…) pins the base: `job_base` of the stage in cdk.json, without which `cdk` refuses
# a stage that retains its data. The tag is for a first look at a stage without.
ARG RELEASE
ARG BASE=public.ecr.aws/emr-serverless/spark/${RELEASE}:latest
FROM ${BASE}
USER root
# An interpreter of its own: which Python Spark would start, and into which one a bare `pip` installs, is EMR's choice.
# The application names it to driver and executors (infra/stacks/jobs.py).
COPY requirements/setup.lock requirements/images/jobs.lock /opt/strandline/requirements/
RUN python3.12 -m venv /opt/strandline/venv \
 && /opt/strandline/venv/bin/python -m pip install --no-cache-dir --require-hashes -r /opt/strandline/requirements/setup.lock \
 && /opt/strandline/venv/bin/uv pip install --python /opt/strandline/venv/bin/python --no-cache --require-hashes \
      --only-binary :all: --compile-bytecode -r /opt/strandline/requirements/jobs.lock
COPY catalog /opt/strandline/catalog
COPY spark_jobs /opt/strandline/spark_jobs
RUN /opt/strandline/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash \
      /opt/strandline/catalog /opt/strandline/spark_jobs
ENV PYTHONPATH=/opt/strandline
# What EMR's image validator asks for: this user and this working directory
# (docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/using-custom-images.html).
USER hadoop:hadoop
WORKDIR /home/hadoop

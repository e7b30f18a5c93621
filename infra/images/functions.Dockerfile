# One image recipe for every function; EXTRA picks the packages: requirements/images/<EXTRA>.lock, which `make lock`
# resolves for this Python and architecture, from wheels only: the base has no compiler.
# BASE with a digest (name@sha256:…) pins the base: `function_base` of the stage in cdk.json, without which `cdk` refuses
# a stage that retains its data. The tag is for a first look at a stage without.
ARG BASE=public.ecr.aws/lambda/python:3.12-x86_64
FROM ${BASE} AS build
ARG EXTRA
WORKDIR /build
COPY requirements/setup.lock requirements/images/${EXTRA}.lock ./
RUN python -m pip install --no-cache-dir --require-hashes -r setup.lock \
 && uv pip install --no-cache --require-hashes --only-binary :all: --compile-bytecode --target /packages -r ${EXTRA}.lock

FROM ${BASE}
COPY --from=build /packages ${LAMBDA_TASK_ROOT}
COPY catalog ${LAMBDA_TASK_ROOT}/catalog
COPY functions ${LAMBDA_TASK_ROOT}/functions
# Lambda's file system is read-only: what is not compiled here is compiled at every cold start.
RUN python -m compileall -q --invalidation-mode unchecked-hash catalog functions

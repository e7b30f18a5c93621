# One image recipe for every function; EXTRA picks the dependencies (see [project.optional-dependencies]).
FROM public.ecr.aws/lambda/python:3.12-arm64 AS build
ARG EXTRA
WORKDIR /build
COPY pyproject.toml README.md requirements/all.lock ./
RUN pip install --no-cache-dir uv==0.13.7 \
 && uv pip compile pyproject.toml --extra "$EXTRA" --constraint all.lock --generate-hashes -q -o image.lock \
 && uv pip install --no-cache --require-hashes --compile-bytecode --target /packages -r image.lock

FROM public.ecr.aws/lambda/python:3.12-arm64
COPY --from=build /packages ${LAMBDA_TASK_ROOT}
COPY catalog ${LAMBDA_TASK_ROOT}/catalog
COPY functions ${LAMBDA_TASK_ROOT}/functions
# Lambda's file system is read-only: what is not compiled here is compiled at every cold start.
RUN python -m compileall -q --invalidation-mode unchecked-hash catalog functions

# The program for NVIDIA GPUs; docs/containers.md has the commands. Build it in the repository:
#   docker build -f containers/cuda.Dockerfile -t sweet:cuda .
# CUDA's libraries come with the packages of torch; the driver comes from the host (NVIDIA Container Toolkit).
ARG BASE=docker.io/library/debian:bookworm-slim
FROM ${BASE}

# bubblewrap and libseccomp2 are for the jail of delivered code, firefox-esr for pages, g++ and python3-dev for Triton,
# which compiles when it runs.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      bubblewrap ca-certificates firefox-esr g++ libseccomp2 python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

COPY pyproject.toml README.md LICENSE /source/
COPY sweet /source/sweet
RUN python3 -m venv /opt/sweet \
    && /opt/sweet/bin/pip install --no-cache-dir '/source[data,gpu,html,log,play,ray]' \
    && rm -rf /source

# An ordinary user: neither the program nor what it runs needs root. Runs and downloads are in the volume.
RUN useradd --create-home --uid 1000 sweet && mkdir /work && chown sweet:sweet /work
ENV PATH=/opt/sweet/bin:$PATH HF_HOME=/work/models SWEET_DATA=/work/data
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER sweet
WORKDIR /work
VOLUME /work
ENTRYPOINT ["sweet"]
CMD ["doctor"]

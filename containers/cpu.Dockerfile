# The program for machines without a GPU; docs/containers.md has the commands. Build it in the repository:
#   docker build -f containers/cpu.Dockerfile -t sweet:cpu .
ARG BASE=docker.io/library/debian:bookworm-slim
FROM ${BASE}

# bubblewrap and libseccomp2 are for the jail of delivered code, firefox-esr for pages.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      bubblewrap ca-certificates firefox-esr libseccomp2 python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

# torch's own index has builds without CUDA, which are a tenth as large.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY pyproject.toml README.md LICENSE /source/
COPY sweet /source/sweet
RUN python3 -m venv /opt/sweet \
    && /opt/sweet/bin/pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" '/source[data,html,log,play]' \
    && rm -rf /source

# An ordinary user: neither the program nor what it runs needs root. Runs and downloads are in the volume.
RUN useradd --create-home --uid 1000 sweet && mkdir /work && chown sweet:sweet /work
ENV PATH=/opt/sweet/bin:$PATH HF_HOME=/work/models SWEET_DATA=/work/data
USER sweet
WORKDIR /work
VOLUME /work
ENTRYPOINT ["sweet"]
CMD ["doctor"]

# r1zero on NVIDIA GPUs: `docker build -f .ci/cuda.Dockerfile -t r1zero .`, then
# `docker run --gpus all --ipc=host -v $PWD/runs:/r1zero/runs r1zero make train-r1zero`.
# torch and vLLM bring their own CUDA libraries; the base image gives nvcc, which kernels compiled at run time ask for.
# Written without a GPU at hand: not built or run yet.
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv python3-dev git make gcc g++ bubblewrap \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /r1zero
COPY . .
# GPU=1: there is none while an image is built, and the Makefile would choose the CPU's packages.
RUN make setup GPU=1
CMD ["make", "train-r1zero"]

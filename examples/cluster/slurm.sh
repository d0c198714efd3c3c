#!/bin/bash
#SBATCH --job-name=hindcast
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue

# Starts a Ray node on every node of the job and trains on the first. A job that is requeued resumes:
#   sbatch slurm.sh pong reverse_gvf 200M
set -euo pipefail

game=${1:?game} task=${2:-reverse_gvf} frames=${3:-10M}
run_dir=${RUN_DIR:-runs/$game-$task-$SLURM_JOB_ID}   # on a file system that the nodes share
port=$((20000 + SLURM_JOB_ID % 20000))

export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python3 -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=$(srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" hostname --ip-address | awk '{print $1}')

srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" --overlap \
    ray start --head --node-ip-address="$head" --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" \
    --include-dashboard=false --disable-usage-stats --block &
sleep 15
if ((${#nodes[@]} > 1)); then
    srun --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --exclude="${nodes[0]}" --overlap \
        ray start --address="$head:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --disable-usage-stats --block &
fi

if [[ -e $run_dir/config.json ]]; then
    command=(hindcast train --resume --run-dir "$run_dir")
else
    command=(hindcast train --game "$game" --task "$task" --frames "$frames" --run-dir "$run_dir")
fi
# Slurm sends SIGTERM two minutes before the end; the run saves a checkpoint and leaves.
srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" --overlap \
    "${command[@]}" --ray-address "$head:$port" --cluster-timeout 300 &
training=$!
trap 'kill -TERM "$training"' TERM
wait "$training"

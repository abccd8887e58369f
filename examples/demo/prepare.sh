#!/bin/sh
# A job of Slurm's own on a node that pods use too: it makes what examples/demo/train.yaml reads.
#   sbatch examples/demo/prepare.sh
#SBATCH --job-name=prepare --partition=compute --nodelist=node-0 --mem=32M --time=5
#SBATCH --chdir=/var/tmp --output=/dev/null
sleep 4
echo "data of job $SLURM_JOB_ID" > /var/tmp/data

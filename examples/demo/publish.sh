#!/bin/sh
# A job of Slurm's own that waits for a pod, by the pod's job:
#   sbatch --dependency=afterok:$(kubectl get pod train -n team -o 'jsonpath={.metadata.labels.scheduler\.slinky\.slurm\.net/slurm-jobid}') examples/demo/publish.sh
#SBATCH --job-name=publish --partition=compute --nodelist=node-0 --mem=32M --time=5
#SBATCH --chdir=/var/tmp --output=/dev/null
sleep 2
echo "published by job $SLURM_JOB_ID: $(cat /var/tmp/model)" > /var/tmp/published

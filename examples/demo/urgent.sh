#!/bin/sh
# The same as a job of Slurm's own, on the other node:
#   sbatch examples/demo/urgent.sh
#SBATCH --job-name=urgent --partition=compute --nodelist=node-1 --qos=high --exclusive --mem=32M --time=5
#SBATCH --chdir=/var/tmp --output=/dev/null
echo "$(cut -d" " -f1 /proc/uptime) urgent begins" >> /var/tmp/words
sleep 4

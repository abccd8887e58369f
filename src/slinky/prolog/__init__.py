"""`slinky prolog`: on a node with a slurmd and a kubelet, before a job of Slurm's own begins, wait until the containers are gone of pods whose share of the node Slurm has taken back.

Comes in: what the node's container runtime tells of pods (with the job's id, a label that only the bridge may write), and Slurm's word on those jobs. Goes out: an exit code, for slurmd: 0 when the job may begin. What must stay true: no credentials are needed but those of root on the node;
nobody is waited for who rightfully shares the node, nor pods that are none of the bridge's; with nothing to wait for it costs a job start some hundredths of a second, and Slurm no question; nothing is imported but Python's own library, so that one file is all that a node needs.
"""

#!/usr/bin/env bash
# A Slurm cluster of two nodes, n1 and n2, on this one host, for the time of one command:
#
#   cluster.sh COMMAND [ARGUMENT...]
#
# One slurmctld and two slurmd with configuration, state, logs and ports of their own in a temporary folder;
# no munge, no systemd, no accounting, no cgroups. Each node has a host name and a /dev/shm of its own (namespaces);
# otherwise Open MPI would take them for one and use the other's shared memory. The command runs with SLURM_CONF set.
# In all cases, every process that was started here is ended by its id and the folder is removed. The exit status
# is the command's; it is 77, with a line that says why, when no cluster can be started on this machine at all.
# A cluster that should start and does not is a failure: its logs are printed.
set -uo pipefail

skip() {
  echo "[cairn] skipped slurm.$(basename "${command[-1]}" _test.py): $1"
  exit 77
}

PATH=$PATH:/usr/sbin:/sbin
[ $# -gt 0 ] || { echo "usage: cluster.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
command=("$@")
[ "$(id -u)" = 0 ] || skip "Slurm's daemons need root"
for program in slurmctld slurmd srun sbatch scancel sinfo squeue; do
  command -v "$program" >/dev/null || skip "$program is not installed (Debian: slurm-wlm)"
done
unshare --mount --uts true 2>/dev/null || skip "this machine does not allow namespaces (unshare --mount --uts)"

folder=$(mktemp -d "${TMPDIR:-/tmp}/cairn-slurm.XXXXXX")
chmod 755 "$folder"
command_pid=

# Ids of the processes that live in this cluster: daemons, steps and tasks inherit the path of its configuration. Steps
# cannot be found as children, because slurmd lets go of them.
cluster_processes() {
  local environment
  for environment in /proc/[0-9]*/environ; do
    if grep -qzF "SLURM_CONF=$folder/" "$environment" 2>/dev/null; then basename "${environment%/environ}"; fi
  done
}

tear_down() {
  local status=$? pids
  trap - EXIT
  trap '' INT TERM HUP
  [ -z "$command_pid" ] || kill -TERM "$command_pid" 2>/dev/null
  [ $status = 0 ] || [ $status = 77 ] || show_why
  if [ -n "$(timeout 5 squeue --noheader 2>/dev/null)" ]; then
    timeout 5 scancel --signal=KILL --user="$(id -un)" 2>/dev/null
    timeout 5 scancel --user="$(id -un)" 2>/dev/null
    sleep 1
  fi
  local signal
  for signal in TERM TERM KILL KILL; do
    mapfile -t pids < <(cluster_processes)
    [ ${#pids[@]} -gt 0 ] || break
    kill "-$signal" "${pids[@]}" 2>/dev/null
    local waited
    for waited in {1..20}; do
      [ -n "$(cluster_processes)" ] || break 2
      sleep 0.1
    done
  done
  rm -rf "$folder"
  # 75 (job.py): Slurm itself made no progress. That happens rarely, and has never happened twice.
  if [ $status = 75 ] && [ -z "${CAIRN_SLURM_AGAIN:-}" ]; then
    echo "== once more, with a new cluster"
    CAIRN_SLURM_AGAIN=1 exec "$BASH" "${BASH_SOURCE[0]}" "${command[@]}"
  fi
  exit $status
}

# The command's output comes last, so that truncated logs keep it.
show_why() {
  local log
  echo "== jobs and nodes"
  timeout 5 squeue --noheader --format '%i %T %r %N' 2>&1
  timeout 5 sinfo --noheader --Node --format '%N %T %E' 2>&1
  for log in "$folder"/*.log; do
    [ -s "$log" ] || log=$log.early
    [ -s "$log" ] || continue
    echo "== the end of $(basename "$log")"
    tail -n 40 "$log"
  done
  sleep 0.5  # for the last of it
  [ ! -s "$folder/said" ] || { echo "== the end of what the command said"; tail -n 30 "$folder/said"; }
}

trap tear_down EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

read -r controller_port node1_port node2_port < <(python3 - <<'END'
import random
import socket

# Below the ports that Linux gives to connections: one of those might be taken before a daemon binds it.
ports, listeners = [], []
while len(ports) < 3:
    listener = socket.socket()
    try:
        listener.bind(("", port := random.randrange(20000, 30000)))
    except OSError:
        continue
    ports.append(port)
    listeners.append(listener)
print(*ports)
END
)
host=$(hostname -s)
# Each node has a TmpFS of its own: otherwise the two halves of a PMIx step would use the same folder.
# Four processors per node, whatever the machine has: config_overrides.
mkdir -p "$folder"/{state,spool.n1,spool.n2,tmp.n1,tmp.n2}
cat >"$folder/slurm.conf" <<END
ClusterName=cairn
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller_port
SlurmUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
TmpFS=$folder/tmp.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=5
MinJobAge=300
NodeName=DEFAULT CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 State=UNKNOWN
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$node1_port
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$node2_port
PartitionName=cairn Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
END
echo "CgroupAutomount=no" >"$folder/cgroup.conf"
# Fences along a tree release tasks before others have arrived (22.05): one in ten steps of eight tasks crashed in
# MPI_Init. Without this line, fences that exchange no data are of that kind.
echo "PMIxCollFence=ring" >"$folder/mpi.conf"
export SLURM_CONF=$folder/slurm.conf

# Only a list without pmix is a reason to skip; no list at all is a fault of the configuration above.
if ! plugins=$(srun --mpi=list 2>&1); then
  echo "srun --mpi=list failed: $plugins"
  exit 1
fi
[[ $plugins == *pmix* ]] || skip "this Slurm has no PMIx plugin (srun --mpi=list)"

# Inside a job of the site's own Slurm, variables of that job would mislead ours.
while read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(SLURM|SBATCH|SRUN|PMIX)_' | grep -vx SLURM_CONF)

# Before its log is open, a daemon complains on standard error. Should this script be killed without its traps,
# the daemons end with it.
with_this_script=(setpriv --pdeathsig KILL)
"${with_this_script[@]}" slurmctld -D >/dev/null 2>"$folder/slurmctld.log.early" &
for node in n1 n2; do
  "${with_this_script[@]}" unshare --mount --uts \
    sh -c 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && exec slurmd -D -N "$0"' "$node" \
    >/dev/null 2>"$folder/slurmd.$node.log.early" &
done

# Both nodes idle, within a minute; a daemon that has ended will not come back.
is_up() { [ "$(timeout 5 sinfo --noheader --format '%D %t' 2>/dev/null)" = "2 idle" ]; }
deadline=$((SECONDS + 60))
until is_up; do
  if [ "$(jobs -rp | wc -l)" -lt 3 ]; then
    echo "a Slurm daemon ended while the cluster was starting"
    exit 1
  fi
  if [ $SECONDS -ge $deadline ]; then
    echo "the two Slurm nodes were not idle within 60 s: $(timeout 5 sinfo --noheader 2>&1)"
    exit 1
  fi
  sleep 0.2
done
echo "a Slurm cluster of two nodes is up ($(slurmctld -V), $SECONDS s)"

# Shorter than ctest's limit, which kills without cleaning up.
timeout --kill-after=10 200 "$@" > >(exec env -u SLURM_CONF tee "$folder/said") 2>&1 &
command_pid=$!
wait "$command_pid"
exit $?

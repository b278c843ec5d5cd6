# Clean Debians with a systemd each, in namespaces of this machine: for scripts that source it, as root. They go away with the script.
# The script says who it is in `me`. `on NAME COMMAND...` runs a command in one that `boot NAME` started.
[ "$(id -u)" = 0 ] || { echo "$me: skipped: needs root: it makes namespaces"; exit 77; }

n_checks=0
declare -A machine machine_root machine_outside
say() { echo "$me: $*"; }
fail() {
  local name
  say "FAILED: $*"
  for name in "${!machine_outside[@]}"; do
    tail -n 20 "$work/$name.log" 2>/dev/null || true
    on "$name" journalctl --no-pager -n 40 2>/dev/null || true
  done
  exit 1
}
# check WHAT COMMAND...: the command succeeds.
check() { local what=$1; shift; "$@" || fail "$what"; n_checks=$((n_checks + 1)); }
# soon WHAT COMMAND...: it does within a minute. Only asking again shows what a daemon does by itself.
soon() {
  local what=$1 tries=0; shift
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1)); [ $tries -lt 300 ] || fail "$what"; sleep 0.2
  done
  n_checks=$((n_checks + 1))
}
not() { ! "$@"; }

work=$(mktemp -d /var/tmp/fibula-$me.XXXXXX)
cgroups=
for at in /sys/fs/cgroup/unified /sys/fs/cgroup; do
  if grep -q " $at cgroup2 " /proc/mounts; then cgroups=$at; break; fi
done
[ -n "$cgroups" ] || { echo "$me: skipped: no cgroup2 is mounted, which systemd takes: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"; exit 77; }
own_cgroup=$cgroups$(sed -n 's/^0:://p' /proc/self/cgroup)
cleanup() {
  local name
  # unshare blocks the others; its child, systemd, is killed with it.
  for name in "${!machine_outside[@]}"; do
    kill -KILL "${machine_outside[$name]}" 2>/dev/null || true; wait "${machine_outside[$name]}" 2>/dev/null || true
  done
  echo $$ > "$own_cgroup/cgroup.procs" 2>/dev/null || true
  for name in "${!machine_outside[@]}"; do find "$cgroups/fibula-$me-$$-$name" -depth -type d -exec rmdir {} \; 2>/dev/null || true; done
  # What has just ended may still write its last file there.
  rm -rf "$work" 2>/dev/null || { sleep 1; rm -rf "$work"; }
}
trap cleanup EXIT

cat > "$work/boot" <<'END'
set -e
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do touch "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"; done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mkdir "$root/run/outside"
cd "$root"
# Not chroot: services get roots of their own made of this one.
pivot_root . run/outside
cd /
umount -l /run/outside
exec env -i container=fibula-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system
END

# clean_root TAR [PACKAGES]: an archive of a small Debian with these packages besides, made once.
clean_root() {
  [ ! -e "$1" ] || return 0
  say "a clean root (once; a minute)"
  mkdir -p "$(dirname "$1")"
  mmdebstrap --quiet --variant=minbase ${2:+--include=$2} bookworm "${1%.tar}.new.tar"
  mv "${1%.tar}.new.tar" "$1"
}

# boot NAME TAR: a machine of this archive. Its files are in ${machine_root[NAME]}.
boot() {
  local name=$1 root=$work/$1 cgroup=$cgroups/fibula-$me-$$-$1 pid=
  mkdir -p "$root" "$cgroup"
  tar -xf "$2" -C "$root" --exclude=./dev/\*
  # What packages do to a running system is looked at here.
  rm -f "$root/usr/sbin/policy-rc.d"
  echo "$name" > "$root/etc/hostname"
  (echo $BASHPID > "$cgroup/cgroup.procs"
   exec unshare --mount --pid --ipc --uts --net --cgroup --fork --kill-child --propagation private \
     bash "$work/boot" "$root") > "$work/$name.log" 2>&1 &
  machine_outside[$name]=$! machine_root[$name]=$root
  first() { pid=$(cat "/proc/$1/task/$1/children" 2>/dev/null) && [ -n "$pid" ] && grep -q systemd "/proc/${pid% }/comm"; }
  soon "systemd starts" first "${machine_outside[$name]}"
  machine[$name]=${pid% }
  is_up() { [[ $(on "$1" systemctl is-system-running) = @(running|degraded) ]]; }
  soon "systemd has started" is_up "$name"
}
# on NAME COMMAND...
on() { local name=$1; shift; nsenter -t "${machine[$name]}" -m -p -n -i -u -C -w "$@"; }

# Sourced by ./emi, ./test and .ci/versions, which set $root to the project directory. Creates and
# repairs $root/.venv.

# The supported interpreters, as in pyproject.toml.
PYTHONS='python3.11 python3.12 python3.13'

say() { printf '%s\n' "$*" >&2; }

# is_ready EXTRA: succeeds if .venv was installed from the current pyproject.toml and constraints.txt.
# The path is part of the checksum, because a .venv does not work after it is moved.
is_ready() {
  wanted=$({ printf '%s\n' "$root" && cat "$root/pyproject.toml" "$root/constraints.txt"; } | cksum)
  [ -x "$venv/bin/python" ] && [ -f "$venv/installed" ] || return 1
  case "$(cat "$venv/installed")" in
    "$wanted $1" | "$wanted dev") return 0 ;; # dev includes all
    *) return 1 ;;
  esac
}

# find_python: sets $python to a Python that can create the environment. 3.11 is tried first, because
# constraints.txt is tested with it. Each candidate is run, because a name on PATH may be an empty shim.
find_python() {
  without_venv=
  for python in $PYTHONS python3; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return 0
    without_venv=$python
  done
  if [ -n "$without_venv" ]; then
    say "emi: $without_venv has no venv module: install it (Debian, Ubuntu: the package" \
      "$without_venv-venv) and run this again."
  else
    say "emi: no Python 3.11 or newer on PATH: install one and run this again."
  fi
  return 1
}

# set_up EXTRA: creates or repairs .venv if necessary.
set_up() {
  venv=$root/.venv
  is_ready "$1" && return 0

  if [ -x "$venv/bin/python" ]; then python=$venv/bin/python; else find_python || return 1; fi
  mkdir -p "$venv" || return 1
  # Two first uses at the same time must not install twice. The lock belongs to descriptor 9 of this
  # shell: it outlives the Python process that takes it, and is released however the shell ends.
  exec 9>>"$venv/lock"
  "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' || return 1
  is_ready "$1" || install "$1"
  status=$?
  exec 9>&-
  return $status
}

install() {
  rm -f "$venv/installed"
  # The file "unfinished" exists from the creation of .venv until its first installation is complete.
  if [ -e "$venv/unfinished" ] ||
    ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    find_python || return 1
    say "Setting up $venv with $("$python" --version) (first use, about 2 minutes) …"
    find "$venv" -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf {} + || return 1
    : >"$venv/unfinished"
    "$python" -m venv "$venv" >"$venv/install.log" 2>&1 || { explain_failure; return 1; }
  else
    say "Updating $venv …"
    "$venv/bin/python" -c 'import pip' 2>/dev/null || "$venv/bin/python" -m ensurepip >/dev/null 2>&1
  fi
  "$venv/bin/python" -m pip install --disable-pip-version-check -c "$root/constraints.txt" \
    -e "$root[$1]" >"$venv/install.log" 2>&1 || { explain_failure; return 1; }
  rm -f "$venv/unfinished"
  printf '%s %s' "$wanted" "$1" >"$venv/installed"
}

explain_failure() {
  tail -n 15 "$venv/install.log" >&2
  say "emi: setting up $venv failed: see the lines above and $venv/install.log," \
    "fix the cause and run this again."
}

/**
 * apt — installs packages on Debian and Ubuntu without starting the daemons they bring.
 *
 * One run at a time on a machine: a lock of our own around all of it, and patience with the lock of
 * dpkg for everybody else. Nothing recommended comes along.
 */

import type { Machine } from './machine.ts';

/** Files of the system; tests have their own. */
export interface AptFiles {
  /** Debian asks this program whether a daemon may be started; 101 is no. */
  readonly policy: string;
  readonly lock: string;
}

const FILES: AptFiles = {
  policy: '/usr/sbin/policy-rc.d',
  lock: '/run/lock/respool-test-servers.lock',
};
const INSTALL_TIMEOUT_MS = 15 * 60_000;
const DPKG_LOCK_TIMEOUT_S = 600;

/**
 * A policy of somebody else's stays as it is, and where it does not forbid starting, we do not
 * install. One of ours that a killed run has left is taken over.
 */
const SCRIPT = `set -eu
mark='# made by the test servers of respool, for the time of one installation'
if [ -e "$POLICY" ] && ! grep -qxF "$mark" "$POLICY"; then
  code=0; "$POLICY" respool start >/dev/null 2>&1 || code=$?
  if [ "$code" != 101 ]; then
    echo "$POLICY lets daemons start; install the packages yourself" >&2; exit 1
  fi
else
  trap 'rm -f "$POLICY"' EXIT
  trap 'exit 130' INT TERM HUP
  printf '#!/bin/sh\\n%s\\nexit 101\\n' "$mark" >"$POLICY"
  chmod 755 "$POLICY"
fi
tries=0
until apt-get -q update; do
  tries=$((tries + 1)); [ "$tries" -lt 5 ] || exit 1
  sleep 5
done
apt-get -q -y -o "DPkg::Lock::Timeout=$PATIENCE" --no-install-recommends install "$@"
`;

/** Installs packages; rejects with what apt-get said. */
export async function installPackages(
  machine: Machine,
  packages: readonly string[],
  { policy, lock }: AptFiles = FILES,
): Promise<void> {
  const args = [lock, 'sh', '-c', SCRIPT, 'respool-apt', ...packages];
  await machine.run('flock', args, {
    env: {
      ...machine.env,
      DEBIAN_FRONTEND: 'noninteractive',
      POLICY: policy,
      PATIENCE: String(DPKG_LOCK_TIMEOUT_S),
    },
    timeoutMs: INSTALL_TIMEOUT_MS,
  });
}

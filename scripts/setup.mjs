/**
 * Makes a checkout ready to run: packages, a Redis server, the build. Does only what is missing and says so in one line
 * per step; with nothing to do it is silent and takes a fraction of a second.
 */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { alone, build, isBuilt, root } from './build.mjs'

const lockfile = 'package-lock.json'
const installedLockfile = 'node_modules/.package-lock.json'
const servers = ['redis-server', 'valkey-server']
const oldestMajor = 7

export const installLines = [
  '  Debian, Ubuntu   sudo apt-get install -y redis-server',
  '  Fedora, RHEL     sudo dnf install -y redis',
  '  Alpine           sudo apk add redis',
  '  macOS            brew install redis',
]

/** In this order; each step is looked at again once this process is alone. */
export const steps = [
  { says: 'Installing packages (npm ci)', isDone: packagesInstalled, run: installPackages },
  { says: 'Installing redis-server', isDone: () => serverFound(process.env.PATH), run: installServer },
  { says: 'Building dist/', isDone: isBuilt, run: build },
]

/** Answers the exit code of the first step that fails. */
export async function setUp(folder = root) {
  if (steps.every((step) => step.isDone(folder))) return 0
  return alone(() => {
    for (const { says, isDone, run } of steps) {
      if (isDone(folder)) continue
      console.log(says)
      const code = run(folder)
      if (code !== 0) return code
    }
    return 0
  }, folder)
}

export function packagesInstalled(folder = root) {
  const wanted = fs.statSync(path.join(folder, lockfile))
  const installed = fs.statSync(path.join(folder, installedLockfile), { throwIfNoEntry: false })
  return installed !== undefined && installed.mtimeMs >= wanted.mtimeMs
}

function installPackages(folder) {
  // Errors only: a warning about another package's wishes is nothing the reader can act on.
  const code = run('npm', ['ci', '--include=dev', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: folder })
  // The lockfile may lie in the future (another machine's clock); then npm's own time would never catch up with it.
  if (code === 0) {
    const time = Math.max(Date.now(), fs.statSync(path.join(folder, lockfile)).mtimeMs + 1) / 1000
    fs.utimesSync(path.join(folder, installedLockfile), time, time)
  }
  return code
}

export function serverFound(searchPath = '') {
  const folders = searchPath.split(path.delimiter).filter(Boolean)
  const candidates = folders.flatMap((folder) => servers.map((name) => path.join(folder, name)))
  return candidates.filter((file) => fs.existsSync(file)).some((file) => isSuitable(versionLine(file)))
}

/** Reads the answer to `--version`, such as "Redis server v=7.0.15 sha=…". */
export function isSuitable(line) {
  return Number(/\bv=(\d+)\./.exec(line)?.[1] ?? 0) >= oldestMajor
}

function versionLine(file) {
  return spawnSync(file, ['--version'], { encoding: 'utf8', timeout: 5_000 }).stdout ?? ''
}

function installServer() {
  if (!fs.existsSync('/etc/debian_version') || process.getuid?.() !== 0) return tellHowToInstall()
  // At run level 1 Debian's packages do not start their service: Busbar runs a server of its own.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' }
  const code =
    run('apt-get', ['-qq', 'update'], { env }) ||
    run('apt-get', ['-qq', 'install', '-y', '--no-install-recommends', 'redis-server'], { env })
  return code === 0 && serverFound(process.env.PATH) ? 0 : tellHowToInstall(code)
}

function tellHowToInstall(code = 1) {
  console.error(`Neither redis-server nor valkey-server (${oldestMajor}.0 or newer) is on the PATH. Install it with:`)
  console.error(installLines.join('\n'))
  return code || 1
}

function run(command, args, options) {
  const { status, error } = spawnSync(command, args, { stdio: ['ignore', 'ignore', 'inherit'], ...options })
  if (error) console.error(`${command} cannot be run: ${error.message}`)
  return status ?? 1
}

if (process.argv[1] && fs.realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  process.exitCode = await setUp()
}

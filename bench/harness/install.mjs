/**
 * Brings what the bench needs and the project does not: the peers' packages, and nats-server.
 * Plain Node, no dependency: it runs before anything is installed.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { findProgram } from './servers.mjs'

const benchFolder = fileURLToPath(new URL('..', import.meta.url))

/** `npm ci` in bench/ when its packages are missing or older than the lockfile. */
export function installPeers() {
  const installed = `${benchFolder}/node_modules/.package-lock.json`
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(`${benchFolder}/package-lock.json`).mtimeMs)
    return
  console.error('Installing the peers in bench/ …')
  // The only install script among them compiles what is also there ready-made.
  run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'])
}

/** Why there is no nats-server, or undefined when there is one. */
export function installNats() {
  if (findProgram('nats-server')) return undefined
  const isRoot = process.getuid?.() === 0
  if (!isRoot || !findProgram('apt-get'))
    return 'nats-server is not installed (Debian, Ubuntu: sudo apt-get install nats-server; macOS: brew install nats-server)'
  console.error('Installing nats-server …')
  const install = ['apt-get', ['install', '-y', '-qq', '--no-install-recommends', 'nats-server']]
  if (!tryRun(...install)) {
    tryRun('apt-get', ['update', '-qq'])
    tryRun(...install)
  }
  return findProgram('nats-server') ? undefined : 'apt-get could not install nats-server'
}

function run(command, args) {
  if (!tryRun(command, args)) throw new Error(`${command} ${args.join(' ')} failed`)
}

function tryRun(command, args) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  // Standard output is for results only.
  return spawnSync(command, args, { cwd: benchFolder, env, stdio: ['ignore', 2, 2] }).status === 0
}

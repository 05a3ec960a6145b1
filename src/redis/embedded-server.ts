/**
 * Finds a server that can carry Busbar on this machine, or says how to install one.
 */
import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { BusbarError } from '../errors.ts'

const names = ['redis-server', 'valkey-server']
const oldestMajor = 7

export const installRemedy = [
  'Install it with the line for this machine, or set redis to a server that runs elsewhere:',
  '  Debian, Ubuntu   sudo apt-get install -y redis-server',
  '  Fedora, RHEL     sudo dnf install -y redis',
  '  Alpine           sudo apk add redis',
  '  macOS            brew install redis',
].join('\n')

/** The first suitable server in `path`, a list of folders as in PATH. */
export async function findRedisServer(path: string): Promise<string> {
  const tooOld: string[] = []
  for (const binary of await executablesIn(path)) {
    const version = await versionOf(binary)
    if (version && Number.parseInt(version, 10) >= oldestMajor) return binary
    if (version) tooOld.push(`${binary} is version ${version}`)
  }
  if (tooOld.length === 0) throw BusbarError.of('REDIS_NOT_INSTALLED', { remedy: installRemedy })
  throw BusbarError.of('REDIS_UNSUITABLE', {
    problem: `${tooOld.join(' and ')}; ${oldestMajor}.0 or newer is needed`,
    remedy: installRemedy,
  })
}

async function executablesIn(path: string): Promise<string[]> {
  const found: string[] = []
  for (const folder of path.split(delimiter).filter(Boolean)) {
    for (const name of names) {
      const binary = join(folder, name)
      const usable = await access(binary, constants.X_OK).then(
        () => true,
        () => false,
      )
      if (usable) found.push(binary)
    }
  }
  return found
}

/** Answers nothing for a file that cannot be run or does not say its version. */
async function versionOf(binary: string): Promise<string | undefined> {
  const answer = await promisify(execFile)(binary, ['--version'], { timeout: 5_000 }).catch(() => undefined)
  return answer && /\bv=(\d+\.\d+\S*)/.exec(answer.stdout)?.[1]
}

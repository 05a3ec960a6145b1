/**
 * Where the embedded Redis of a data folder keeps its files and its sockets.
 *
 * Both lie in `<data folder>/redis`, which only its owner can enter. The data folder itself may be shared with other
 * things, so its mode is set only when it is made here. Two processes must arrive at the same place for the same
 * folder, by whatever path they name it: nothing here depends on the environment.
 */
import { createHash } from 'node:crypto'
import { chmodSync, lstatSync, mkdirSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { BusbarError } from '../errors.ts'

export interface EmbeddedFolder {
  readonly folder: string
  readonly socketFolder: string
  readonly redisSocket: string
  /** Redis has this name until it is ready; only the keeper uses it. */
  readonly startingSocket: string
  readonly logFile: string
}

const maxSocketPathBytes = 103 // sun_path holds 104 bytes on macOS and 108 on Linux, the last one is NUL
const longestSocketName = 'keeper-12345678.sock'

export function prepareFolder(dataDir: string): EmbeddedFolder {
  try {
    return makeFolder(dataDir)
  } catch (error) {
    if (error instanceof BusbarError) throw error
    const problem = `the data folder cannot be used: ${error instanceof Error ? error.message : error}`
    throw BusbarError.of('REDIS_NOT_STARTED', { problem, log: join(dataDir, 'redis', 'redis.log') }, error)
  }
}

function makeFolder(dataDir: string): EmbeddedFolder {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  const folder = join(realpathSync(dataDir), 'redis')
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  chmodSync(folder, 0o700)
  const logFile = join(folder, 'redis.log')
  const fits = Buffer.byteLength(join(folder, longestSocketName)) <= maxSocketPathBytes
  const socketFolder = fits ? folder : shortFolder(folder, logFile)
  const redisSocket = join(socketFolder, 'redis.sock')
  return { folder, socketFolder, redisSocket, startingSocket: join(socketFolder, 'redis.starting.sock'), logFile }
}

/** Not os.tmpdir(): processes with different TMPDIR would each start a server on the same files. */
function shortFolder(folder: string, logFile: string): string {
  const short = `/tmp/busbar-${createHash('sha256').update(folder).digest('hex').slice(0, 20)}`
  mkdirSync(short, { recursive: true, mode: 0o700 })
  const found = lstatSync(short)
  // Anyone can make folders in /tmp, so one that is not ours alone may be a trap.
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o077) !== 0) {
    throw BusbarError.of('REDIS_NOT_STARTED', {
      problem: `the path of the data folder is too long for a socket, and ${short} is not a private folder of this user; remove it, or use a shorter path`,
      log: logFile,
    })
  }
  return short
}

/**
 * The root token: who has it may do everything. It lies in the data folder, readable by its owner only.
 *
 * It is compared by hash, in constant time, and never stands in a message, a log line or a reply.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { chmod, link, mkdir, open, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { BusbarError } from '../errors.ts'
import { systemRandomness } from '../runtime/clock.ts'

const fileName = 'root-token'
const tokenShape = /^[A-Za-z0-9_-]{20,256}$/

/** The root token: generated into the data folder, file root-token, mode 0600, 120 random bits; reused when there. */
export async function loadRootToken(dataDir: string): Promise<string> {
  const path = join(dataDir, fileName)
  try {
    await mkdir(dataDir, { recursive: true, mode: 0o700 })
    return (await readToken(path)) ?? (await makeToken(path))
  } catch (error) {
    if (error instanceof BusbarError) throw error
    throw unusable(`${path} cannot be used: ${(error as Error).message}`, error)
  }
}

async function readToken(path: string): Promise<string | undefined> {
  let token: string
  try {
    token = (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
  if (!tokenShape.test(token))
    throw unusable(`${path} does not hold a token (20 to 256 of A-Z a-z 0-9 _ -). Remove it, and a new one is made`)
  if (((await stat(path)).mode & 0o077) !== 0) await chmod(path, 0o600)
  return token
}

/** Written beside and linked into place: whoever looks sees a whole token, and of two that start at once one wins. */
async function makeToken(path: string): Promise<string> {
  const token = systemRandomness.id()
  const draft = `${path}.${systemRandomness.id()}`
  try {
    const file = await open(draft, 'wx', 0o600)
    try {
      await file.writeFile(`${token}\n`)
      await file.sync()
    } finally {
      await file.close()
    }
    await link(draft, path)
    return token
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    return (await readToken(path)) ?? makeToken(path)
  } finally {
    await rm(draft, { force: true })
  }
}

const unusable = (problem: string, cause?: unknown): BusbarError =>
  BusbarError.of('SETTING_INVALID', { problems: [`dataDir: ${problem}`] }, cause)

/** UNAUTHENTICATED unless an Authorization header carries the token. */
export function bearerCheck(token: string): (header: string | undefined) => void {
  const wanted = sha256(token)
  return (header) => {
    const given = /^Bearer +(\S+) *$/i.exec(header ?? '')?.[1]
    if (given === undefined) throw BusbarError.of('UNAUTHENTICATED', { isGiven: false })
    // Hashes are of one length, which timingSafeEqual needs and which hides the token's.
    if (!timingSafeEqual(sha256(given), wanted)) throw BusbarError.of('UNAUTHENTICATED', { isGiven: true })
  }
}

const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest()

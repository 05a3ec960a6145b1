/**
 * What `busbar doctor` thinks of what it found: facts in, findings out, nothing is asked here.
 *
 *   ok     as it should be
 *   warn   works, but something may be lost, slow or misleading; says what to do
 *   fail   Busbar cannot or will not run like this; says what to do
 */
import { formatBytes, formatDuration } from '../duration.ts'
import type { ServerFacts } from '../redis/server.ts'

export type Verdict = 'ok' | 'warn' | 'fail'

export interface Finding {
  check: string
  verdict: Verdict
  found: string
  remedy?: string
}

const ok = (check: string, found: string): Finding => ({ check, verdict: 'ok', found })
const warn = (check: string, found: string, remedy: string): Finding => ({ check, verdict: 'warn', found, remedy })
const fail = (check: string, found: string, remedy: string): Finding => ({ check, verdict: 'fail', found, remedy })

const leastNode = [20, 19] as const

export function judgeNode(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const fits = major > leastNode[0] || (major === leastNode[0] && minor >= leastNode[1])
  return fits ? ok('node', version) : fail('node', version, `Use Node ${leastNode.join('.')} or newer.`)
}

export interface FolderFacts {
  path: string
  /** Undefined: not there yet. */
  mode: number | undefined
  writable: boolean
  tokenMode: number | undefined
}

export function judgeFolder({ path, mode, writable, tokenMode }: FolderFacts): Finding {
  const check = 'data folder'
  if (!writable)
    return fail(check, `${path} cannot be written`, 'Give this user the folder, or another one by --data-dir.')
  if (tokenMode !== undefined && (tokenMode & 0o077) !== 0)
    return warn(check, `others can read ${path}/root-token`, `Run: chmod 600 ${path}/root-token`)
  if (mode === undefined) return ok(check, `${path}, not there yet`)
  return ok(check, `${path}, mode ${(mode & 0o777).toString(8)}`)
}

export function judgeVersion({ software, version }: ServerFacts): Finding {
  const found = `${software} ${version}`
  if (Number.parseInt(version, 10) >= 7) return ok('version', found)
  return fail('version', found, 'Use Redis 7.0 or newer, or Valkey.')
}

/** `fsync` is undefined when the server does not tell. */
export function judgeAppendOnly({ appendOnly }: ServerFacts, fsync: string | undefined): Finding {
  const check = 'append-only file'
  if (!appendOnly)
    return warn(check, 'off: a restart of Redis loses events', 'Set "appendonly yes" and "appendfsync everysec".')
  if (fsync === undefined) return ok(check, 'on; this Redis does not tell how often it is synced')
  if (fsync === 'no')
    return warn(check, 'on, but never synced: a crash of the machine loses events', 'Set "appendfsync everysec".')
  return ok(check, `on, fsync ${fsync}`)
}

export function judgeLimit(facts: ServerFacts, { embedded }: { embedded: boolean }): Finding {
  const { maxMemoryBytes, maxMemoryPolicy } = facts
  const limit = maxMemoryBytes > 0 ? formatSize(maxMemoryBytes) : 'no limit'
  const found = `${limit}, ${maxMemoryPolicy}`
  if (maxMemoryPolicy !== 'noeviction') {
    const remedy = 'Set "maxmemory-policy noeviction": any other throws parts of the log away.'
    return maxMemoryBytes > 0 ? fail('maxmemory', found, remedy) : warn('maxmemory', found, remedy)
  }
  if (maxMemoryBytes > 0 || embedded) return ok('maxmemory', found)
  return warn('maxmemory', found, 'Set "maxmemory", or Redis grows until the system ends it.')
}

const nearlyFull = 0.8

export function judgeMemory({ usedMemoryBytes, maxMemoryBytes }: ServerFacts): Finding {
  if (maxMemoryBytes === 0) return ok('memory', `${formatSize(usedMemoryBytes)} used`)
  const share = usedMemoryBytes / maxMemoryBytes
  const found = `${formatSize(usedMemoryBytes)} used, ${Math.round(100 * share)} % of the limit`
  if (share < nearlyFull) return ok('memory', found)
  const remedy = 'Raise maxmemory, or keep less: see the retention settings.'
  return share >= 1 ? fail('memory', found, remedy) : warn('memory', found, remedy)
}

export function judgeNamespace(name: string, stored: number | undefined, asked: number | undefined): Finding {
  if (stored === undefined) return ok('namespace', `${name}, not there yet`)
  const found = `${name}, ${stored} partitions`
  if (asked === undefined || asked === stored) return ok('namespace', found)
  return fail(
    'namespace',
    `${found}, but the settings ask for ${asked}`,
    `Set partitions to ${stored}, or use another namespace.`,
  )
}

const muchSkewMs = 1_000

/** `skewMs`: how far Redis is ahead of this machine. */
export function judgeClock(skewMs: number): Finding {
  const amount = formatDuration(Math.abs(Math.round(skewMs)))
  const found =
    Math.abs(skewMs) < 5 ? 'the same here and in Redis' : `Redis is ${amount} ${skewMs > 0 ? 'ahead' : 'behind'}`
  if (Math.abs(skewMs) < muchSkewMs) return ok('clock', found)
  return warn('clock', found, 'Synchronise both clocks: events get the time of Redis.')
}

export interface WebhookRules {
  allow: readonly string[]
  allowHttp: boolean
  development: boolean
}

export function judgeWebhooks({ allow, allowHttp, development }: WebhookRules): Finding {
  const check = 'webhooks'
  if (development)
    return warn(check, 'may go to this machine, and to http://', 'Leave out webhooks.development in production.')
  const where = ['public addresses', ...allow].join(', ')
  return ok(check, `may go to ${where}, by ${allowHttp ? 'https and http' : 'https'}`)
}

export function judgeReach(where: string, tookMs: number): Finding {
  return ok('redis', `${where}, answers in ${tookMs.toFixed(1)} ms`)
}

export const unreachable = (found: string): Finding =>
  fail('redis', found, 'Start it, or correct the redis setting: busbar config shows where that comes from.')

/** A check that Redis does not let us make. */
export const unknown = (check: string, problem: string): Finding =>
  warn(check, `could not be looked at: ${problem}`, 'Allow this user INFO, CONFIG GET, TIME and HGET.')

function formatSize(bytes: number): string {
  const unit = bytes >= 2 ** 30 ? 2 ** 30 : bytes >= 2 ** 20 ? 2 ** 20 : 2 ** 10
  return formatBytes(Math.max(1, Math.round(bytes / unit)) * unit)
}

/** What a receiver may be told, checked: everything that is wrong with it at once. */
import { asked, type Bytes, type Duration, type Parsed, parseBytes, parseDuration } from '../duration.ts'
import { BusbarError, shown } from '../errors.ts'
import { type OrderGuard, type OrderGuardOptions, orderGuard } from '../order-guard.ts'
import { groupProblems, unknownOptions } from '../unknown-name.ts'
import { checkSecret } from '../webhook-signature.ts'
import { memoryOrder, memorySeen, type SeenStore } from './memory.ts'

export interface ReceiverOptions {
  /** Of the subscription: `whsec_…`, or the public key `whpk_…`; several during a rotation. */
  secret: string | readonly string[]
  /** Where it is kept what was handled, or how much of it and how long in memory. Default `{ maxIds: 100_000, ttl: '24h' }`. */
  seen?: SeenStore | { maxIds?: number; ttl?: Duration }
  /**
   * `'monotone'`: an event that is older than the last handled one of its object is passed over. An order guard's options keep that in a
   * store of your own, and may ask for `mode: 'strict'`. Default: every event is handled, in the order in which it comes.
   */
  order?: 'monotone' | OrderGuardOptions | false
  /** How far the time of a request may be from now. Default 5m. */
  tolerance?: Duration
  /** What a body may have. Default 4MiB. */
  maxBytes?: Bytes
  /** Hears of every request that was not answered with 204. Default: what failed here becomes a warning of the process. */
  onError?(error: BusbarError): void
}

export interface Settings {
  secrets: readonly string[]
  seen: SeenStore
  guard: OrderGuard | undefined
  toleranceMs: number
  maxBytes: number
  onError(error: BusbarError): void
}

const known = new Set<keyof ReceiverOptions>(['secret', 'seen', 'order', 'tolerance', 'maxBytes', 'onError'])
const knownOfSeen = new Set(['maxIds', 'ttl'])

/** SETTING_INVALID with all problems. */
export function readOptions(options: ReceiverOptions | undefined): Settings {
  const given = options ?? ({} as ReceiverOptions)
  const problems = unknownOptions(given, known)
  const settings: Settings = {
    secrets: readSecrets(given.secret, problems),
    seen: readSeen(given.seen ?? {}, problems),
    guard: readOrder(given.order ?? false, problems),
    toleranceMs: amountOf('tolerance', parseDuration, given.tolerance ?? '5m', problems),
    maxBytes: amountOf('maxBytes', parseBytes, given.maxBytes ?? '4MiB', problems),
    onError: given.onError ?? warn,
  }
  if (typeof settings.onError !== 'function') problems.push(`onError must be a function; got ${shown(given.onError)}`)
  if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
  return settings
}

function readSecrets(given: unknown, problems: string[]): readonly string[] {
  const secrets = Array.isArray(given) ? given : [given]
  if (secrets.length === 0)
    problems.push('secret must be that of the subscription, or a list of several; got an empty one')
  for (const secret of secrets) tried('secret ', () => checkSecret(secret, 'verify'), problems)
  return secrets
}

function readSeen(given: NonNullable<ReceiverOptions['seen']>, problems: string[]): SeenStore {
  if (isSeenStore(given)) return given
  const wrong = groupProblems('seen', given, knownOfSeen)
  problems.push(...wrong)
  const { maxIds = 100_000, ttl = '24h' } = wrong.length > 0 ? {} : given
  if (!Number.isSafeInteger(maxIds) || maxIds < 1)
    problems.push(`seen.maxIds must be a whole number from 1 on; got ${shown(maxIds)}`)
  return memorySeen({ maxIds, ttlMs: amountOf('seen.ttl', parseDuration, ttl, problems) })
}

const isSeenStore = (given: object): given is SeenStore =>
  typeof (given as SeenStore).has === 'function' && typeof (given as SeenStore).add === 'function'

function readOrder(given: unknown, problems: string[]): OrderGuard | undefined {
  if (given === false) return undefined
  if (given === 'monotone') return orderGuard({ store: memoryOrder() })
  if (given === 'strict') {
    // In memory it would wait after each start for events that were handled before it.
    problems.push("order must name a store that outlives the process to be strict, as in { mode: 'strict', store }")
    return undefined
  }
  if (typeof given === 'object') return tried('order.', () => orderGuard(given as OrderGuardOptions), problems)
  problems.push(`order must be 'monotone', the options of an order guard, or false; got ${shown(given)}`)
  return undefined
}

/** What another check makes of it; what that says is wrong is said here behind the option's name. */
function tried<T>(name: string, check: () => T, problems: string[]): T | undefined {
  try {
    return check()
  } catch (error) {
    if (!(error instanceof BusbarError)) throw error
    const said = (error.details.problems ?? [error.details.problem]) as string[]
    problems.push(...said.map((problem) => name + problem))
    return undefined
  }
}

function amountOf(name: string, parse: (value: unknown) => Parsed<number>, given: unknown, problems: string[]): number {
  const parsed = asked(parse(given), given)
  if (parsed.ok && parsed.value > 0) return parsed.value
  problems.push(`${name} ${parsed.ok ? 'must be more than 0' : parsed.problem}`)
  return 0
}

/** The sender is told that it was not handled; why, only this side may know. */
function warn(error: BusbarError): void {
  if (error.status !== 500) return
  const { cause } = error
  process.emitWarning(error.message, { code: error.code, ...(cause instanceof Error ? { detail: cause.stack } : {}) })
}

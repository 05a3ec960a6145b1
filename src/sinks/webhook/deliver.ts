/** One attempt: a batch, and who it is for, become a signed request; its answer becomes a verdict and a line in the log of attempts. */
import { storedReason } from '../../lanes/item.ts'
import type { Randomness } from '../../runtime/clock.ts'
import { version } from '../../version.ts'
import { signedHeaders } from '../../webhook-signature.ts'
import type { Batch } from './batch.ts'
import { contentType, type Format } from './format.ts'
import { settingsOf, type WebhookSettings } from './options.ts'
import type { Posted, Poster } from './post.ts'
import type { HookFacts } from './scripts.ts'
import { judge, type Verdict } from './verdict.ts'

/** Where requests go and how they are signed, as it is now. */
export interface Endpoint {
  settings: WebhookSettings
  secrets: readonly string[]
  failingSince: number | undefined
}

const mostKnown = 1_000

/** Endpoints as they were described last: read anew only when the text is another one, or a secret has lapsed. */
export class Endpoints {
  readonly #known = new Map<string, { stored: string; untilMs: number; settings: WebhookSettings; secrets: string[] }>()

  of(hook: HookFacts, nowMs: number): Endpoint {
    const known = this.#known.get(hook.name)
    const isSame = known?.stored === hook.stored && nowMs < known.untilMs
    const { settings, secrets } = isSame ? known! : this.#read(hook, nowMs)
    return { settings, secrets, failingSince: hook.failingSince }
  }

  #read({ name, stored }: HookFacts, nowMs: number) {
    if (this.#known.size >= mostKnown) this.#known.clear()
    // The definition is the last line.
    const at = stored.lastIndexOf('\n')
    const settings = settingsOf(JSON.parse(stored.slice(at + 1)) as Record<string, unknown>)
    const secrets = stored.slice(0, at)
    const read = { stored, untilMs: lapseOf(secrets, nowMs), settings, secrets: secretsAt(secrets, nowMs) }
    this.#known.set(name, read)
    return read
  }
}

/** An attempt as it is kept for people. */
export interface Attempt {
  /** ms, of its end. */
  at: number
  batch: string
  attempt: number
  events: number
  /** Undefined when there was no answer. */
  status?: number
  /** Why there was none. */
  problem?: string
  tookMs: number
  /** The beginning of the answer. */
  excerpt?: string
  outcome: Verdict['became'] | 'disabled'
  /** When it is tried again. */
  againInMs?: number
}

export interface Delivered {
  verdict: Verdict
  attempt: Attempt
}

export interface DeliverContext {
  poster: Poster
  randomness: Randomness
  /** The server's clock, as far as this process knows it. */
  nowMs(): number
}

export interface RequestAbout {
  id: string
  format: Format
  body: string
}

export function headersFor(
  { id, format, body }: RequestAbout,
  endpoint: Endpoint,
  nowMs: number,
): Record<string, string> {
  const { headers, basic } = endpoint.settings
  const timestamp = Math.floor(nowMs / 1000)
  return {
    ...headers,
    'content-type': contentType[format],
    'user-agent': `busbar/${version}`,
    ...(basic === undefined ? {} : { authorization: `Basic ${Buffer.from(`${basic}:x`).toString('base64')}` }),
    ...signedHeaders({ id, timestamp, body }, endpoint.secrets),
  }
}

/** Undefined when there was no attempt: all connections there are taken, which says nothing of the receiver. */
export async function deliver(
  context: DeliverContext,
  batch: Batch,
  endpoint: Endpoint,
  signal: AbortSignal,
): Promise<Delivered | undefined> {
  const { settings, failingSince } = endpoint
  const beganMs = context.nowMs()
  const posted = await context.poster.post({
    ...{ url: settings.url, body: batch.body, signal, totalMs: settings.timeoutMs, connections: settings.parallel },
    headers: headersFor(batch, endpoint, beganMs),
  })
  if (posted.kind === 'failed' && posted.isUnsent) return undefined
  const nowMs = context.nowMs()
  const attempts = batch.attempts + 1
  const tried = { posted, attempts, firstTriedMs: batch.firstTriedMs ?? beganMs, failingSince, nowMs }
  const verdict = judge(tried, settings, context.randomness)
  return { verdict, attempt: attemptOf(posted, verdict, { nowMs, batch: batch.id, attempts, events: batch.events }) }
}

function attemptOf(
  posted: Posted,
  verdict: Verdict,
  { nowMs, batch, attempts, events }: { nowMs: number; batch: string; attempts: number; events: number },
): Attempt {
  return {
    ...{ at: nowMs, batch, attempt: attempts, events },
    ...answerOf(posted),
    tookMs: Math.round(posted.tookMs),
    outcome: verdict.became === 'back' ? 'disabled' : verdict.became,
    ...(verdict.became === 'failed' ? { againInMs: verdict.afterMs } : {}),
  }
}

/** What a receiver said is anybody's text: it is kept apart, and short. */
export const answerOf = (posted: Posted): Pick<Attempt, 'status' | 'problem' | 'excerpt'> =>
  posted.kind === 'failed'
    ? { problem: storedReason(posted.problem) }
    : { status: posted.status, ...(posted.excerpt === '' ? {} : { excerpt: posted.excerpt }) }

/** The secrets that count at this time, of how they are stored. */
export const secretsAt = (stored: string, nowMs: number): string[] =>
  storedSecrets(stored).flatMap(({ untilMs, secret }) => (untilMs > nowMs ? [secret] : []))

/** When the first of those that count lapses; never, for most. */
const lapseOf = (stored: string, nowMs: number): number =>
  Math.min(...storedSecrets(stored).flatMap(({ untilMs }) => (untilMs > nowMs ? [untilMs] : [])))

const storedSecrets = (stored: string): { untilMs: number; secret: string }[] =>
  stored.split('\n').flatMap((line) => {
    const [until, secret] = line.split(' ')
    return secret ? [{ untilMs: until === '0' ? Number.POSITIVE_INFINITY : Number(until), secret }] : []
  })

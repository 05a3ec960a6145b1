/** One attempt: a batch, and who it is for, become a signed request; its answer becomes a verdict and a line in the log of attempts. */
import { storedReason } from '../../lanes/item.ts'
import type { Randomness } from '../../runtime/clock.ts'
import { version } from '../../version.ts'
import { type Signer, signatureHeaders, signerOf } from '../../webhook-signature.ts'
import type { StopSignal } from './attempt.ts'
import type { Batch } from './batch.ts'
import { contentType, type Format } from './format.ts'
import { settingsOf, type WebhookSettings } from './options.ts'
import type { Posted, Poster } from './post.ts'
import type { HookFacts } from './scripts.ts'
import { judge, type Verdict } from './verdict.ts'

/** Where requests go and how they are signed, as it is now. */
export interface Endpoint {
  settings: WebhookSettings
  /** That are the same in all of its requests. */
  headers: Readonly<Record<string, string>>
  sign: Signer
}

export function endpointOf(settings: WebhookSettings, secrets: readonly string[]): Endpoint {
  const headers: Record<string, string> = { ...settings.headers, 'user-agent': `busbar/${version}` }
  if (settings.basic !== undefined)
    headers.authorization = `Basic ${Buffer.from(`${settings.basic}:x`).toString('base64')}`
  return { settings, headers, sign: signerOf(secrets) }
}

const mostKnown = 1_000

/** Endpoints as they were described last: read anew only when the text is another one, or a secret has lapsed. */
export class Endpoints {
  readonly #known = new Map<string, { stored: string; untilMs: number; endpoint: Endpoint }>()

  of(hook: HookFacts, nowMs: number): Endpoint {
    const known = this.#known.get(hook.name)
    return known?.stored === hook.stored && nowMs < known.untilMs ? known.endpoint : this.#read(hook, nowMs)
  }

  #read({ name, stored }: HookFacts, nowMs: number): Endpoint {
    if (this.#known.size >= mostKnown) this.#known.clear()
    // The definition is the last line.
    const at = stored.lastIndexOf('\n')
    const settings = settingsOf(JSON.parse(stored.slice(at + 1)) as Record<string, unknown>)
    const secrets = stored.slice(0, at)
    const endpoint = endpointOf(settings, secretsAt(secrets, nowMs))
    this.#known.set(name, { stored, untilMs: lapseOf(secrets, nowMs), endpoint })
    return endpoint
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
  status?: number | undefined
  /** Why there was none. */
  problem?: string | undefined
  tookMs: number
  /** The beginning of the answer. */
  excerpt?: string | undefined
  outcome: Verdict['became'] | 'disabled'
  /** When it is tried again. */
  againInMs?: number | undefined
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

/** A batch, who it is for and since when that one fails, and what calls the attempt off. */
export interface Delivery {
  batch: Batch
  endpoint: Endpoint
  failingSince: number | undefined
  signal: StopSignal
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
  const timestamp = Math.floor(nowMs / 1000)
  return {
    'content-type': contentType[format],
    [signatureHeaders.id]: id,
    [signatureHeaders.timestamp]: String(timestamp),
    [signatureHeaders.signature]: endpoint.sign({ id, timestamp, body }),
    // Last: to add to what was spread takes V8 4 µs.
    ...endpoint.headers,
  }
}

/** Undefined when there was no attempt: all connections there are taken, which says nothing of the receiver. */
export async function deliver(
  context: DeliverContext,
  { batch, endpoint, failingSince, signal }: Delivery,
): Promise<Delivered | undefined> {
  const { settings } = endpoint
  const beganMs = context.nowMs()
  const posted = await context.poster.post({
    url: settings.url,
    headers: headersFor(batch, endpoint, beganMs),
    body: batch.body,
    totalMs: settings.timeoutMs,
    connections: settings.parallel,
    signal,
  })
  if (posted.kind === 'failed' && posted.isUnsent) return undefined
  const nowMs = context.nowMs()
  const attempts = batch.attempts + 1
  const tried = { posted, attempts, firstTriedMs: batch.firstTriedMs ?? beganMs, failingSince, nowMs }
  const verdict = judge(tried, settings, context.randomness)
  return { verdict, attempt: attemptOf(batch, posted, verdict, nowMs) }
}

// Objects are written out where each request makes one: to spread parts into them takes ten times as long.
function attemptOf(batch: Batch, posted: Posted, verdict: Verdict, nowMs: number): Attempt {
  const { status, problem, excerpt } = answerOf(posted)
  return {
    at: nowMs,
    batch: batch.id,
    attempt: batch.attempts + 1,
    events: batch.events,
    status,
    problem,
    tookMs: Math.round(posted.tookMs),
    excerpt,
    outcome: verdict.became === 'back' ? 'disabled' : verdict.became,
    againInMs: verdict.became === 'failed' ? verdict.afterMs : undefined,
  }
}

/** What a receiver said is anybody's text: it is kept apart, and short. */
export const answerOf = (posted: Posted): Pick<Attempt, 'status' | 'problem' | 'excerpt'> =>
  posted.kind === 'failed'
    ? { problem: storedReason(posted.problem) }
    : { status: posted.status, excerpt: posted.excerpt || undefined }

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

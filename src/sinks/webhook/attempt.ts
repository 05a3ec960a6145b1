/**
 * One request of a webhook, from the call to what became of it.
 *
 *   waiting    all connections of its endpoint are taken
 *   sent       it has one: connecting, or waiting for the answer
 *   answered   status and headers are there; the body is read for its beginning only, and for no longer than `bodyMs`
 *   ended      answered or failed; whatever comes later changes nothing
 *
 * The status is the answer: a body that never ends, breaks off, has another length than it says or is packed takes nothing from it.
 */
import type { Dispatcher } from 'undici'
import { excerptBytes, excerptOf, retryAfterMs } from './answer.ts'
import { NotInTime, problemOf } from './problem.ts'

export type Posted =
  | { kind: 'answered'; status: number; retryAfterMs: number | undefined; excerpt: string; tookMs: number }
  | { kind: 'failed'; problem: string; tookMs: number }

export interface PostRequest {
  url: string
  headers: Record<string, string>
  body: string
  /** In place of the poster's. */
  totalMs?: number
  /** Ends it as soon as it fires. */
  signal?: AbortSignal
}

export interface AttemptLimits {
  /** Until status and headers are there, waiting for a connection included. */
  totalMs: number
  bodyMs: number
  maxResponseBytes: number
  /** Wall time in ms, for what a receiver says as a date. */
  now(): number
}

/** Who has it meanwhile. `isReusable`: the whole answer was read, so its connection can take another one. */
export interface Holder {
  left(attempt: Attempt, isReusable: boolean): void
}

/** More of them before an answer is no progress but a flood. */
const mostInterim = 10

export class Attempt implements Dispatcher.DispatchHandler {
  readonly request: Dispatcher.DispatchOptions
  readonly #headers: Record<string, string>
  readonly #limits: AttemptLimits
  readonly #settle: (posted: Posted) => void
  readonly #signal: AbortSignal | undefined
  readonly #startedAt = performance.now()
  #timer: NodeJS.Timeout
  #holder: Holder | undefined
  #isWaiting = true
  #ended = false
  #interim = 0
  #status = 0
  #retryAfter: string | string[] | undefined
  #isPacked = false
  #bytes = 0
  readonly #chunks: Uint8Array[] = []

  constructor(url: URL, request: PostRequest, limits: AttemptLimits, settle: (posted: Posted) => void) {
    const { headers, body, signal } = request
    this.request = { method: 'POST', path: url.pathname + url.search, headers, body }
    this.#headers = headers
    this.#limits = limits
    this.#settle = settle
    this.#signal = signal
    this.#timer = setTimeout(this.#late, limits.totalMs)
    signal?.addEventListener('abort', this.#aborted)
  }

  waitsAt(holder: Holder): void {
    this.#holder = holder
  }

  sentBy(holder: Holder): void {
    this.#holder = holder
    this.#isWaiting = false
  }

  /** Nothing more is waited for: it was answered if there is a status, else this is why not. */
  stop(problem: string): void {
    if (this.#status > 0) this.#answered(false)
    else this.#end({ kind: 'failed', problem, tookMs: this.#tookMs() }, false)
  }

  /** By this one undici knows which kind of handler it has. */
  onRequestStart(): void {}

  onResponseStart(_: unknown, status: number, headers: Record<string, string | string[] | undefined>): void {
    if (this.#ended) return
    if (status < 200) return this.#interimAnswer()
    this.#status = status
    this.#retryAfter = headers['retry-after']
    this.#isPacked = (headers['content-encoding'] ?? 'identity') !== 'identity'
    const leftMs = this.#limits.totalMs - this.#tookMs()
    clearTimeout(this.#timer)
    this.#timer = setTimeout(this.#late, Math.min(this.#limits.bodyMs, leftMs))
  }

  onResponseData(_: unknown, chunk: Uint8Array): void {
    if (this.#ended) return
    if (this.#bytes < excerptBytes) this.#chunks.push(chunk)
    this.#bytes += chunk.length
    if (this.#bytes > this.#limits.maxResponseBytes) this.#answered(false)
  }

  onResponseEnd(): void {
    this.#answered(true)
  }

  onResponseError(_: unknown, error: Error): void {
    this.stop(problemOf(error))
  }

  #interimAnswer(): void {
    this.#interim += 1
    if (this.#interim > mostInterim) this.stop('interim answers without end')
  }

  readonly #late = (): void => {
    this.stop(new NotInTime(this.#isWaiting ? 'free connection' : 'answer', this.#limits.totalMs).message)
  }

  readonly #aborted = (): void => this.stop('stopped before there was an answer')

  #answered(isReusable: boolean): void {
    if (this.#ended) return
    const excerpt = this.#isPacked && this.#bytes > 0 ? '(compressed)' : excerptOf(this.#chunks, this.#headers)
    const retryAfter = retryAfterMs(this.#retryAfter, this.#limits.now())
    this.#end(
      {
        kind: 'answered',
        status: this.#status,
        retryAfterMs: retryAfter,
        excerpt,
        tookMs: this.#tookMs(),
      },
      isReusable,
    )
  }

  #end(posted: Posted, isReusable: boolean): void {
    if (this.#ended) return
    this.#ended = true
    clearTimeout(this.#timer)
    this.#signal?.removeEventListener('abort', this.#aborted)
    this.#holder?.left(this, isReusable)
    this.#settle(posted)
  }

  #tookMs(): number {
    return Math.round(performance.now() - this.#startedAt)
  }
}

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
  /** `isUnsent`: it had no connection in its time, so its receiver never heard of it. */
  | { kind: 'failed'; problem: string; tookMs: number; isUnsent?: true }

export interface PostRequest {
  url: string
  headers: Record<string, string>
  body: string
  /** In place of the poster's. */
  totalMs?: number
  /** To its origin there may be so many, if that is more than the poster's. */
  connections?: number
  /** Ends it as soon as it fires. */
  signal?: StopSignal
}

/** An AbortSignal, or what does the same with less: each request listens to one. */
export interface StopSignal {
  readonly aborted: boolean
  addEventListener(type: 'abort', listener: () => void): void
  removeEventListener(type: 'abort', listener: () => void): void
}

export interface AttemptLimits {
  /** Until status and headers are there, from when it has a connection on; and for having one. */
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
const noContent = 204

export class Attempt implements Dispatcher.DispatchHandler {
  readonly request: Dispatcher.DispatchOptions
  readonly #headers: Record<string, string>
  readonly #limits: AttemptLimits
  readonly #settle: (posted: Posted) => void
  readonly #signal: StopSignal | undefined
  readonly #totalMs: number
  #startedAt = performance.now()
  #timer: NodeJS.Timeout | undefined
  #holder: Holder | undefined
  #isWaiting = true
  #ended = false
  #interim = 0
  #status = 0
  #retryAfter: string | string[] | undefined
  #isPacked = false
  #bytes = 0
  readonly #chunks: Uint8Array[] = []

  constructor(path: string, request: PostRequest, limits: AttemptLimits, settle: (posted: Posted) => void) {
    const { headers, body, signal, totalMs } = request
    this.request = { method: 'POST', path, headers, body }
    this.#headers = headers
    this.#limits = limits
    this.#totalMs = totalMs ?? limits.totalMs
    this.#settle = settle
    this.#signal = signal
    signal?.addEventListener('abort', this.#aborted)
  }

  waitsAt(holder: Holder): void {
    this.#holder = holder
    this.#timer = setTimeout(this.#late, this.#totalMs)
  }

  sentBy(holder: Holder): void {
    this.#holder = holder
    this.#isWaiting = false
    // How long it was in line is nothing to its receiver.
    this.#startedAt = performance.now()
    clearTimeout(this.#timer)
    this.#timer = setTimeout(this.#late, this.#totalMs)
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
    // Its end comes with its headers.
    if (status === noContent || headers['content-length'] === '0') return
    const leftMs = this.#totalMs - this.#tookMs()
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
    if (!this.#isWaiting) return this.stop(new NotInTime('answer', this.#totalMs).message)
    const problem = new NotInTime('free connection', this.#totalMs).message
    this.#end({ kind: 'failed', problem, tookMs: this.#tookMs(), isUnsent: true }, false)
  }

  readonly #aborted = (): void => this.stop('stopped before there was an answer')

  #answered(isReusable: boolean): void {
    if (this.#ended) return
    const excerpt = this.#isPacked && this.#bytes > 0 ? '(compressed)' : excerptOf(this.#chunks, this.#headers)
    const retryAfter = retryAfterMs(this.#retryAfter, this.#limits.now())
    const [status, tookMs] = [this.#status, this.#tookMs()]
    this.#end({ kind: 'answered', status, retryAfterMs: retryAfter, excerpt, tookMs }, isReusable)
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

/**
 * The connections to one origin: at most so many, or as many as one of its webhooks has sequences; each with one request at a time, the others
 * wait in line.
 *
 *   free   its last answer was read to the end; it is closed when nothing was sent for a while, or by the receiver
 *   taken  it has an attempt, and is connected or about to be
 *   gone   cut: by the receiver, or by us because what would come from it next could belong to the last answer
 *
 * These are undici's clients, not its pool: that one lets go of a client whose connection failed but goes on using it, so there can be more
 * connections than were allowed, and some that closing the pool does not close.
 */
import { createRequire } from 'node:module'
import type { Client } from 'undici'
import type { Attempt, Holder } from './attempt.ts'
import type { Guard } from './guard.ts'

export interface EndpointLimits {
  connectMs: number
  connections: number
  keepAliveMs: number
  longestUseMs: number
}

const maxHeaderBytes = 16_384

/** Loaded with the first connection: it takes a quarter of the time in which a process starts, and most have nothing to post. */
const undici = (): typeof import('undici') => load('undici')
const load = createRequire(import.meta.url)

export class Endpoint implements Holder {
  readonly #origin: string
  readonly #guard: Guard
  readonly #limits: EndpointLimits
  readonly #onEmpty: (endpoint: Endpoint) => void
  readonly #connections = new Set<Connection>()
  readonly #free: Connection[] = []
  readonly #waiting = new Set<Attempt>()
  #most: number

  constructor(origin: string, guard: Guard, limits: EndpointLimits, onEmpty: (endpoint: Endpoint) => void) {
    this.#origin = origin
    this.#guard = guard
    this.#limits = limits
    this.#most = limits.connections
    this.#onEmpty = onEmpty
  }

  /** Nothing is under way. */
  get isIdle(): boolean {
    return this.#waiting.size === 0 && this.#free.length === this.#connections.size
  }

  /** `connections`: there may be so many, from now on. */
  send(attempt: Attempt, connections = 0): void {
    this.#most = Math.max(this.#most, connections)
    const connection = this.#place()
    if (connection) return connection.send(attempt)
    attempt.waitsAt(this)
    this.#waiting.add(attempt)
  }

  left(attempt: Attempt): void {
    this.#waiting.delete(attempt)
  }

  /** A connection can take another one. */
  released(connection: Connection): void {
    this.#free.push(connection)
    this.#sendNext()
  }

  /** A connection is gone; there may be a new one in its place. */
  lost(connection: Connection): void {
    if (!this.#connections.delete(connection)) return
    const at = this.#free.indexOf(connection)
    if (at >= 0) this.#free.splice(at, 1)
    // Not at once: undici may be in the middle of something, and a line of attempts that fail would be a stack of calls.
    queueMicrotask(() => {
      this.#sendNext()
      if (this.#connections.size === 0) this.#onEmpty(this)
    })
  }

  async close(): Promise<void> {
    for (const attempt of [...this.#waiting]) attempt.stop(closed)
    await Promise.all([...this.#connections].map((connection) => connection.close()))
  }

  #sendNext(): void {
    const [next] = this.#waiting
    const connection = next && this.#place()
    if (!connection) return
    this.#waiting.delete(next)
    connection.send(next)
  }

  #place(): Connection | undefined {
    const free = this.#free.pop()
    if (free || this.#connections.size >= this.#most) return free
    const connection = new Connection(this, this.#origin, this.#guard, this.#limits)
    this.#connections.add(connection)
    return connection
  }
}

export const closed = 'stopped: webhooks are being closed'

class Connection implements Holder {
  readonly #endpoint: Endpoint
  readonly #client: Client
  readonly #usedUntil: number
  #callOff: (() => void) | undefined
  #attempt: Attempt | undefined

  constructor(endpoint: Endpoint, origin: string, guard: Guard, limits: EndpointLimits) {
    const { connectMs, keepAliveMs, longestUseMs } = limits
    this.#endpoint = endpoint
    this.#usedUntil = performance.now() + longestUseMs
    this.#client = new (undici().Client)(origin, {
      connect: (options, callback) => {
        this.#callOff = guard.connect({ ...options, timeoutMs: connectMs }, callback)
      },
      ...{ pipelining: 1, allowH2: false, maxHeaderSize: maxHeaderBytes },
      // A receiver may ask for less, never for more. Attempts keep the other times themselves.
      ...{ keepAliveTimeout: keepAliveMs, keepAliveMaxTimeout: keepAliveMs, headersTimeout: 0, bodyTimeout: 0 },
    })
    this.#client.on('disconnect', () => this.#disconnected())
  }

  send(attempt: Attempt): void {
    this.#attempt = attempt
    attempt.sentBy(this)
    this.#client.dispatch(attempt.request, attempt)
  }

  left(_: Attempt, isReusable: boolean): void {
    this.#attempt = undefined
    if (isReusable && performance.now() < this.#usedUntil) this.#endpoint.released(this)
    else void this.#cut()
  }

  close(): Promise<void> {
    this.#attempt?.stop(closed)
    return this.#cut()
  }

  /** With an attempt it connects again, if that was not sent, or fails. */
  #disconnected(): void {
    if (this.#attempt === undefined) void this.#cut()
  }

  #cut(): Promise<void> {
    this.#endpoint.lost(this)
    this.#callOff?.()
    return this.#client.destroy()
  }
}

/**
 * What every part of a bus stands on: its connections, its namespace, its one log reader.
 *
 *   closed up   made, nothing connected: a bus that is only declared costs nothing
 *   opening     first use: an embedded Redis is started if none is named, connections are made, the namespace opened;
 *               an unreachable Redis is tried again until it answers or the bus is closed
 *   open        ready for use; lost connections come back by themselves
 *   refused     the server or the namespace cannot be used; every call says why
 *   closed      for good
 */
import type { Redis } from 'ioredis'
import { BusbarError } from './errors.ts'
import { type Namespace, type NamespaceWish, openNamespace } from './log/namespace.ts'
import { Retainer } from './log/retention.ts'
import { type Connection, connect, mayPass } from './redis/connection.ts'
import { type EmbeddedRedis, openEmbeddedRedis } from './redis/embedded.ts'
import { createHints, type Hints } from './redis/hints.ts'
import { checkServer, serverFacts } from './redis/server.ts'
import type { Clock, Randomness } from './runtime/clock.ts'
import type { Telemetry } from './runtime/telemetry.ts'

export interface BackboneOptions {
  /** Undefined: an embedded Redis in `dataDir`. */
  redis: string | undefined
  dataDir: string
  namespace: NamespaceWish
  clock: Clock
  /** For what waits for an answer: real time, also where `clock` stands still. */
  network: Clock
  randomness: Randomness
  telemetry: Telemetry
  /** How long a read waits for a lost Redis. */
  timeoutMs: number
}

export interface Opened {
  namespace: Namespace
  /** Publishes only: a large read on the same connection would delay their answers. */
  writes: Connection
  reads: Connection
  hints: Hints
  retainer: Retainer
}

const retryMs = 100

export class Backbone {
  readonly options: BackboneOptions
  #opening: Promise<Opened> | undefined
  #embedded: Promise<EmbeddedRedis> | undefined
  readonly #connections: Connection[] = []
  #closed = false

  constructor(options: BackboneOptions) {
    this.options = options
  }

  /** Those that have been made so far. */
  get connections(): readonly Connection[] {
    return this.#connections
  }

  get isClosed(): boolean {
    return this.#closed
  }

  /** Resolves when everything is open; rejects only when it can never be. */
  open(): Promise<Opened> {
    if (this.#closed) return Promise.reject(BusbarError.of('BUS_CLOSED'))
    this.#opening ??= this.#open()
    return this.#opening
  }

  /** Runs a read; one that meets a lost connection is asked again until the timeout. */
  async read<T>(
    ask: (redis: Redis, namespace: Namespace) => Promise<T>,
    timeoutMs = this.options.timeoutMs,
  ): Promise<T> {
    const { network: clock } = this.options
    const deadlineAt = clock.monotonicMs() + timeoutMs
    const { reads, namespace } = await this.#within(timeoutMs, this.open())
    for (;;) {
      await reads.whenReady(Math.max(1, deadlineAt - clock.monotonicMs()))
      try {
        return await ask(reads.redis, namespace)
      } catch (error) {
        if (!mayPass(error) || this.#closed) throw error
        if (clock.monotonicMs() >= deadlineAt)
          throw BusbarError.of('REDIS_UNAVAILABLE', { problem: (error as Error).message }, error)
        await this.#pause(Math.min(retryMs, deadlineAt - clock.monotonicMs()))
      }
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#opening?.catch(() => undefined)
    for (const connection of this.#connections) connection.close()
    const embedded = await this.#embedded?.catch(() => undefined)
    await embedded?.release()
  }

  async #open(): Promise<Opened> {
    const { clock, telemetry, namespace: wish } = this.options
    const url = await this.#url()
    const [writes, reads, hintsConnection] = ['writes', 'reads', 'hints'].map((role) => this.#connect(url, role)) as [
      Connection,
      Connection,
      Connection,
    ]
    const hints = createHints(hintsConnection)
    const namespace = await this.#untilAnswered(reads, async (redis) => {
      checkServer(await serverFacts(redis))
      return openNamespace(redis, wish)
    })
    const retainer = new Retainer({ redis: reads.redis, namespace, telemetry, clock })
    return { namespace, writes, reads, hints, retainer }
  }

  async #url(): Promise<string> {
    const { redis, dataDir, telemetry } = this.options
    if (redis !== undefined) return redis
    this.#embedded = openEmbeddedRedis({ dataDir, telemetry })
    const { socketPath } = await this.#embedded
    if (this.#closed) throw BusbarError.of('BUS_CLOSED')
    return `unix://${encodeURI(socketPath)}`
  }

  #connect(url: string, role: string): Connection {
    const { network: clock, telemetry } = this.options
    const connection = connect({ clock, telemetry }, url, role)
    this.#connections.push(connection)
    return connection
  }

  async #untilAnswered<T>(connection: Connection, ask: (redis: Redis) => Promise<T>): Promise<T> {
    for (;;) {
      if (this.#closed) throw BusbarError.of('BUS_CLOSED')
      try {
        await connection.whenReady(1_000)
        return await ask(connection.redis)
      } catch (error) {
        if (!mayPass(error)) throw error
        await this.#pause(retryMs)
      }
    }
  }

  #within<T>(timeoutMs: number, promise: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = this.options.network.after(timeoutMs, () =>
        reject(BusbarError.of('REDIS_UNAVAILABLE', { problem: this.#problem() })),
      )
      promise.then(resolve, reject).finally(() => timer.cancel())
    })
  }

  #problem(): string {
    return this.#connections[0]?.problem ?? 'the embedded Redis has not started yet'
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.options.network.after(ms, resolve))
  }
}

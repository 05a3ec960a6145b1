/**
 * One reader of GET /v1/live: what its LiveReader gives, written as server-sent events.
 *
 *   flowing   the client takes what is written
 *   full      it does not: nothing more is taken from the log for it until it does, so at most one event and what fits
 *             the socket is held
 *   cut       full for too long: told so by a last `gap` frame, ended, and destroyed if it does not take that either
 *   ended     the client went away, or the door closes
 */
import type { ServerResponse } from 'node:http'
import type { Live } from '../bus-types.ts'
import { BusbarError } from '../errors.ts'
import type { Event } from '../event.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import type { Gap } from '../sinks/live/reader.ts'
import { writeFrame, writeKeepAlive, writeOpening } from './sse.ts'

export interface LiveTimes {
  /** How long a reader may take nothing before it is cut. */
  stallMs: number
  /** Below the 30 to 60 s after which proxies give up on a silent connection. */
  keepAliveMs: number
}

export interface LiveStreamOptions {
  response: ServerResponse
  telemetry: Telemetry
  times: LiveTimes
  /** Makes the reader that is written. */
  follow(onGap: (gap: Gap) => void): Live<Event>
}

const retryMs = 1_000

const headers = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  // Otherwise nginx collects events until its buffer is full.
  'x-accel-buffering': 'no',
  // Nothing follows a stream on its connection.
  connection: 'close',
}

export class LiveStream {
  readonly #response: ServerResponse
  readonly #reader: Live<Event>
  readonly #telemetry: Telemetry
  readonly #times: LiveTimes
  /** What is to be said once it can be: per partition one gap, from the first to the last missing. */
  readonly #gaps = new Map<number, Gap>()
  #wake: ((taken: boolean) => void) | undefined

  constructor({ response, telemetry, times, follow }: LiveStreamOptions) {
    this.#response = response
    this.#telemetry = telemetry
    this.#times = times
    this.#reader = follow((gap) => this.#missed(gap))
    response.once('close', () => this.end())
  }

  /** Resolves when the reader has its place; REDIS_UNAVAILABLE after the timeout. Nothing is written yet. */
  ready(timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const problem = `no answer within ${timeoutMs} ms`
      const timer = setTimeout(() => reject(BusbarError.of('REDIS_UNAVAILABLE', { problem })), timeoutMs)
      this.#reader
        .ready()
        .then(resolve, reject)
        .finally(() => clearTimeout(timer))
    })
  }

  /** Writes until the reader ends, the client goes away, or it is cut. */
  async run(): Promise<void> {
    const response = this.#response
    const reader = this.#reader
    response.writeHead(200, headers)
    response.write(writeOpening({ id: reader.cursor, retryMs }))
    this.#writeGaps()
    const keepAlive = setInterval(() => this.#keepAlive(), this.#times.keepAliveMs)
    try {
      for await (const event of reader) {
        response.write(writeFrame({ id: reader.cursor, data: event.toText() }))
        if (response.writableNeedDrain && !(await this.#taken())) return this.#cut()
        this.#writeGaps()
      }
    } finally {
      clearInterval(keepAlive)
      if (!response.writableEnded) response.end()
    }
  }

  /** Ends the reader, and with it the stream. Not an error if it has ended already. */
  end(): void {
    void this.#reader.return?.()
    this.#wake?.(true)
  }

  /** Resolves with true when the client has taken what was written, with false when it has taken too long. */
  #taken(): Promise<boolean> {
    return new Promise((resolve) => {
      // Not at once: after a pause of this process, what the client did meanwhile is heard first.
      const timer = setTimeout(() => setImmediate(() => done(false)), this.#times.stallMs)
      const drained = () => done(true)
      const done = (taken: boolean) => {
        clearTimeout(timer)
        this.#response.off('drain', drained)
        this.#wake = undefined
        resolve(taken)
      }
      this.#response.on('drain', drained)
      this.#wake = done
    })
  }

  /** Nothing is lost: the frame says where to go on, and the log still has the rest. */
  #cut(): void {
    const response = this.#response
    const heldBytes = response.writableLength
    this.#telemetry.emit('live.cut', { stalledMs: this.#times.stallMs, heldBytes })
    this.#writeGaps()
    response.end(
      writeFrame({ event: 'gap', data: JSON.stringify({ reason: 'slow-reader', cursor: this.#reader.cursor }) }),
    )
    const timer = setTimeout(() => response.destroy(), this.#times.stallMs)
    response.once('close', () => clearTimeout(timer))
  }

  /** Retention passed the reader, or Redis lost what it had read. */
  #missed({ partition, from, to }: Gap): void {
    const known = this.#gaps.get(partition) ?? { from, to }
    this.#gaps.set(partition, { partition, from: Math.min(known.from, from), to: Math.max(known.to, to) })
    if (this.#response.headersSent && !this.#response.writableNeedDrain) this.#writeGaps()
  }

  #writeGaps(): void {
    if (this.#response.writableEnded) return
    for (const gap of this.#gaps.values()) this.#response.write(writeFrame({ event: 'gap', data: JSON.stringify(gap) }))
    this.#gaps.clear()
  }

  #keepAlive(): void {
    if (!this.#response.writableNeedDrain) this.#response.write(writeKeepAlive(this.#reader.cursor))
  }
}

/** The streams of a door: they never end by themselves, so the door ends them before it waits for what is in flight. */
export class LiveStreams {
  readonly #streams = new Set<LiveStream>()
  #closed = false

  async run(stream: LiveStream): Promise<void> {
    this.#streams.add(stream)
    if (this.#closed) stream.end()
    try {
      await stream.run()
    } finally {
      this.#streams.delete(stream)
    }
  }

  endAll(): void {
    this.#closed = true
    for (const stream of this.#streams) stream.end()
  }
}

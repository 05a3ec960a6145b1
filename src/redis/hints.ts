/**
 * Wake-up hints: one subscriber connection per bus, one channel per thing.
 *
 * A hint may get lost, so it only ever makes its reader look earlier than its timer would.
 */
import type { Connection } from './connection.ts'

export type HintListener = (message: string) => void

export interface Hints {
  /** Resolves when the server has the subscription; a lost connection subscribes again by itself. */
  listen(channel: string, listener: HintListener): Promise<() => void>
  /** The hint was of no use here. In a flood of such hints the next ones are heard together, a little later. */
  passOver(): void
  close(): void
}

// Being woken thousands of times a second for nothing costs the process more than looking, and costs the publishers on
// the same machine a core's attention. 10 ms are about what a publish takes in such a flood.
const restMs = 10

export function createHints(connection: Connection): Hints {
  const listeners = new Map<string, Set<HintListener>>()
  /** Who comes while the server is being asked waits for the same answer. */
  const subscribing = new Map<string, Promise<unknown>>()
  connection.redis.on('message', (channel: string, message: string) => {
    for (const listener of listeners.get(channel) ?? []) listener(message)
  })
  // A new connection has no subscriptions: neither those of the one that broke nor what was wished for meanwhile.
  connection.onReady(() => {
    const channels = [...listeners.keys()]
    if (channels.length > 0) connection.redis.subscribe(...channels).catch(() => undefined)
  })

  let passedAt = 0
  let resting = false

  return {
    // Real time, whatever the bus's clock: it is about this process's socket, not about a schedule.
    passOver() {
      const now = performance.now()
      const isFlood = now - passedAt < restMs
      passedAt = now
      if (resting || !isFlood) return
      const { stream } = connection.redis
      resting = true
      stream.pause()
      setTimeout(() => {
        stream.resume()
        // What has come meanwhile is heard before the next rest: else a flood would hold back its own end.
        setImmediate(() => {
          resting = false
        })
      }, restMs).unref()
    },
    async listen(channel, listener) {
      const known = listeners.get(channel)
      if (known) known.add(listener)
      else {
        listeners.set(channel, new Set([listener]))
        if (connection.isReady) {
          const asked = connection.redis.subscribe(channel).catch(() => undefined)
          subscribing.set(channel, asked)
          void asked.then(() => subscribing.get(channel) === asked && subscribing.delete(channel))
        }
      }
      await subscribing.get(channel)
      return () => {
        const rest = listeners.get(channel)
        rest?.delete(listener)
        if (rest?.size !== 0) return
        listeners.delete(channel)
        if (connection.isReady) connection.redis.unsubscribe(channel).catch(() => undefined)
      }
    },
    close() {
      listeners.clear()
      connection.close()
    },
  }
}

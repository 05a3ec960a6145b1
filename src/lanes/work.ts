/**
 * Acts in one store that are asked for together go as one call: the store is read and written once for all of
 * them, and a claim finds what the others made ready.
 *
 *   idle       nothing is asked for
 *   gathering  it goes when this tick has had its say; without a claim, while a call is under way, at the end of this turn of the event loop
 *
 * Each act has its own answer; without one, its caller asks again as if it had gone alone.
 */
import { runScript } from '../redis/script.ts'
import { type Act, runLone, workScript } from './acts.ts'
import type { StoreInput } from './scripts.ts'
import type { StoreGround } from './store.ts'

interface Asked {
  act: Act<unknown>
  order: number
  answer(raw: unknown): void
  fail(error: unknown): void
}

/** What becomes ready comes first. */
const orders = { settle: 0, accept: 1, claim: 2 } as const
/** Items per call, about: some ms of Redis. */
const mostPerCall = 1_000
/** A queue in which there was more to do than a lone event and its claim is mostly one in which there still is. */
const busyMs = 1_000

export class Work {
  readonly #ground: StoreGround
  readonly #input: () => StoreInput
  #asked: Asked[] = []
  #flying = 0
  #busyUntil = 0

  constructor(ground: StoreGround, input: () => StoreInput) {
    this.#ground = ground
    this.#input = input
  }

  ask<Reply>(kind: keyof typeof orders, act: Act<Reply>): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const answer = (raw: unknown) => resolve(act.read(raw as never))
      this.#asked.push({ act, order: orders[kind], answer, fail: reject })
      // The next answers may be there already, and take long: Redis has a claim to work on meanwhile.
      if (kind === 'claim') process.nextTick(() => this.#send())
      else if (this.#asked.length === 1) this.#soon(() => this.#send())
    })
  }

  /** As long as Redis is busy with a call of ours nobody loses anything by waiting for what else there is to read. */
  #soon(send: () => void): void {
    if (this.#flying === 0) process.nextTick(send)
    else setImmediate(send)
  }

  #send(): void {
    if (this.#asked.length === 0) return
    const asked = this.#asked.sort((a, b) => a.order - b.order)
    this.#asked = []
    for (let from = 0; from < asked.length; ) {
      const till = endOfCall(asked, from)
      void this.#call(till - from === asked.length ? asked : asked.slice(from, till))
      from = till
    }
  }

  async #call(asked: readonly Asked[]): Promise<void> {
    this.#flying += 1
    try {
      const replies = await this.#do(asked.map(({ act }) => act))
      // Claims come last in a call and first in its answer: handlers begin while the rest is still being noted.
      for (let i = asked.length - 1; i >= 0; i -= 1) asked[i]!.answer(replies[i])
    } catch (error) {
      for (const { fail } of asked) fail(error)
    } finally {
      this.#flying -= 1
    }
  }

  async #do(acts: readonly Act<unknown>[]): Promise<unknown[]> {
    const { clock, connection } = this.#ground
    const input = { ...this.#input(), acts }
    if (clock.monotonicMs() >= this.#busyUntil) {
      const replies = await runLone(connection.redis, input)
      if (replies === 'busy') this.#busyUntil = clock.monotonicMs() + busyMs
      else if (replies) return replies
    }
    return runScript(connection.redis, workScript, input)
  }
}

/** A call ends with a claim: with its answer this process has something to do while the next one is under way. */
function endOfCall(asked: readonly Asked[], from: number): number {
  let size = 0
  for (let till = from; till < asked.length; till += 1) {
    size += asked[till]!.act.size
    if (till > from && size > mostPerCall) return till
    if (asked[till]!.order === orders.claim) return till + 1
  }
  return asked.length
}

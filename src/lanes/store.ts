/**
 * One store of lanes, as this process reaches it. Nothing is kept here; what can go together goes together.
 *
 * Everything may be repeated after a lost answer: see the scripts.
 */
import type { Connection } from '../redis/connection.ts'
import { type LaneKeys, queueKeys } from '../redis/keys.ts'
import { runScript, type Script } from '../redis/script.ts'
import type { Clock } from '../runtime/clock.ts'
import {
  type Accept,
  type AcceptReply,
  acceptAct,
  type Claim,
  type ClaimReply,
  claimAct,
  type Settlement,
  type SettleReply,
  settleAct,
} from './acts.ts'
import { readLease } from './record.ts'
import {
  cancelMark,
  type EnterInput,
  type ExtendInput,
  type ExtendReply,
  enterScript,
  extendScript,
  type NoteInput,
  noteScript,
  renewScript,
  type SendInput,
  type SendReply,
  type StoreInput,
  sendScript,
} from './scripts.ts'
import { Work } from './work.ts'

export interface StoreGround {
  connection: Connection
  /** Only a clock that a test moves says what the scripts take for now. */
  clock: Clock
}

// Queues come and go: a store that is made anew only goes alone once.
const mostStores = 10_000

type Own<Input> = Omit<Input, keyof StoreInput>

export class LaneStore {
  readonly keys: LaneKeys
  readonly #ground: StoreGround
  readonly #work: Work

  constructor(ground: StoreGround, keys: LaneKeys) {
    this.#ground = ground
    this.keys = keys
    this.#work = new Work(ground, () => this.ground)
  }

  claim(claim: Claim): Promise<ClaimReply> {
    return this.#work.ask('claim', claimAct(claim))
  }

  settle(settlements: readonly Settlement[]): Promise<SettleReply> {
    return this.#work.ask('settle', settleAct(settlements))
  }

  accept(accept: Accept): Promise<AcceptReply> {
    return this.#work.ask('accept', acceptAct(accept))
  }

  /** Answers the tokens that hold nothing any more. `cancelled` hears of each item that someone wants cancelled. */
  async renew(tokens: readonly string[], leaseMs: number, cancelled?: (id: string) => void): Promise<string[]> {
    const words = await this.#run(renewScript, { tokens, leaseMs })
    for (const word of words) if (word.startsWith(cancelMark)) cancelled?.(word.slice(cancelMark.length))
    return words.filter((word) => !word.startsWith(cancelMark))
  }

  extend(input: Own<ExtendInput>): Promise<ExtendReply> {
    return this.#run(extendScript, input)
  }

  send(input: Own<SendInput>): Promise<SendReply> {
    return this.#run(sendScript, input)
  }

  enter(input: Own<EnterInput>): Promise<{ kind: string; handedBack: number }> {
    return this.#run(enterScript, input)
  }

  /** What a handler says of its operation; `stale` when it does not hold the item any more. */
  note(input: Own<NoteInput>): Promise<'noted' | 'stale' | 'gone'> {
    return this.#run(noteScript, input)
  }

  /** Whoever waited under this name is not woken any more: another one is. */
  async leaveIdle(name: string): Promise<void> {
    await this.#ground.connection.redis.zrem(this.keys.idle, name)
  }

  /** An item as it is held under a token; null when it is not. */
  async heldItem(token: string, id: string): Promise<string | null> {
    const { redis } = this.#ground.connection
    const lease = await redis.getBuffer(this.keys.heldPrefix + token)
    const held = lease && readLease(lease).items.find((item) => item.id === id)
    return held ? redis.hget(this.keys.items, held.field) : null
  }

  #run<Input extends StoreInput, Reply>(script: Script<Input, Reply>, input: Own<Input>): Promise<Reply> {
    return runScript(this.#ground.connection.redis, script, { ...this.ground, ...input } as Input)
  }

  /** What every script of this store is given. */
  get ground(): StoreInput {
    return { keys: this.keys, nowMs: nowMs(this.#ground.clock) }
  }
}

/** Of a process: one for each queue, so that what goes to the same store can go together. */
export class LaneStores {
  readonly #ground: StoreGround
  readonly #namespace: string
  readonly #stores = new Map<string, LaneStore>()

  constructor(ground: StoreGround, namespace: string) {
    this.#ground = ground
    this.#namespace = namespace
  }

  of(queue: string): LaneStore {
    const known = this.#stores.get(queue)
    if (known) return known
    if (this.#stores.size >= mostStores) this.#stores.clear()
    const store = new LaneStore(this.#ground, queueKeys(this.#namespace, queue))
    this.#stores.set(queue, store)
    return store
  }
}

/** What scripts take for now, where a test says so. */
export function nowMs(clock: Clock): number | undefined {
  const us = clock.serverUs?.()
  return us === undefined ? undefined : Math.floor(us / 1000)
}

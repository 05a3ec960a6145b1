/**
 * The shards that webhooks lie in, as this process reaches them. Nothing is kept here.
 *
 * Everything may be repeated after a lost answer: see the scripts.
 */
import { renewScript, type StoreInput } from '../../lanes/scripts.ts'
import { nowMs } from '../../lanes/store.ts'
import { partitionOf } from '../../log/partition.ts'
import type { Connection } from '../../redis/connection.ts'
import { type WebhookKeys, webhookKeys, webhookShards } from '../../redis/keys.ts'
import { runScript, type Script } from '../../redis/script.ts'
import type { Clock, Randomness } from '../../runtime/clock.ts'
import type { Attempt } from './deliver.ts'
import { readWork, type ShardInput, type WorkInput, type WorkReply, workScript } from './scripts.ts'
import { readTallies } from './tallies.ts'

export interface ShardGround {
  namespace: string
  connection: Connection
  /** Only a clock that a test moves says what the scripts take for now. */
  clock: Clock
  randomness: Randomness
}

type Own<Input> = Omit<Input, keyof ShardInput>

export const shardOf = (name: string): number => partitionOf(name, webhookShards)

export class Shard {
  readonly index: number
  readonly keys: WebhookKeys
  readonly #ground: ShardGround

  constructor(ground: ShardGround, index: number) {
    this.#ground = ground
    this.index = index
    this.keys = webhookKeys(ground.namespace, index)
  }

  run<Input extends ShardInput, Reply>(script: Script<Input, Reply>, input: Own<Input>): Promise<Reply> {
    const { connection, clock, randomness } = this.#ground
    const own = { keys: this.keys, nowMs: nowMs(clock), seed: randomness.id() }
    return runScript(connection.redis, script, { ...own, ...input } as Input)
  }

  async work(input: Own<WorkInput>): Promise<WorkReply> {
    return readWork(input, await this.run(workScript, input))
  }

  /** The newest first. */
  async attempts(name: string, limit: number): Promise<Attempt[]> {
    const texts = await this.#redis.lrange(this.keys.attemptsPrefix + name, 0, limit - 1)
    return texts.map((text) => JSON.parse(text) as Attempt)
  }

  /** ms; undefined when it delivers. */
  async pausedSince(name: string): Promise<number | undefined> {
    const times = await this.#redis.hmget(this.keys.hookPrefix + name, 'disabledAt', 'paused')
    const since = times.find((time) => time !== null)
    return since == null ? undefined : Number(since)
  }

  /** Events that it has waiting, and whether it delivers. */
  async backlog(name: string): Promise<{ events: number; isStopped: boolean }> {
    const [tallies, [paused, disabled]] = await Promise.all([
      this.#redis.hgetBuffer(this.keys.tallies, name),
      this.#redis.hmget(this.keys.hookPrefix + name, 'paused', 'disabled'),
    ])
    return { events: tallies ? readTallies(tallies).backlog : 0, isStopped: paused !== null || disabled !== null }
  }

  /** Webhooks that were disabled, of which no event tells yet. */
  announced(): Promise<string[]> {
    return this.#redis.smembers(this.keys.announced)
  }

  /** Why and since when a webhook is. */
  async disabled(name: string): Promise<{ why: string | null; at: string | null }> {
    const [why = null, at = null] = await this.#redis.hmget(this.keys.hookPrefix + name, 'disabled', 'disabledAt')
    return { why, at }
  }

  /** Of the events in an open batch. */
  async openIds(name: string, sequence: string): Promise<string[]> {
    const pieces = await this.#redis.lrange(`${this.keys.openPrefix}${name}:${sequence}`, 1, -1)
    return pieces.map((piece) => piece.slice(0, piece.indexOf(' ')))
  }

  /** Of all webhooks of the shard, the oldest letter first. */
  deadIds(): Promise<string[]> {
    return this.#redis.zrange(this.keys.deadOrder, '0', '-1')
  }

  dead(ids: readonly string[]): Promise<(string | null)[]> {
    return this.#redis.hmget(this.keys.dead, ...ids)
  }

  get #redis() {
    return this.#ground.connection.redis
  }

  /** Answers the tokens that hold nothing any more. */
  renew(tokens: readonly string[], leaseMs: number): Promise<string[]> {
    const { connection, clock } = this.#ground
    const store: StoreInput = { keys: this.keys, nowMs: nowMs(clock) }
    return runScript(connection.redis, renewScript, { ...store, tokens, leaseMs })
  }
}

/** Of a process. */
export class Shards {
  readonly #all: readonly Shard[]

  constructor(ground: ShardGround) {
    this.#all = Array.from({ length: webhookShards }, (_, index) => new Shard(ground, index))
  }

  /** In which a webhook lies. */
  of(name: string): Shard {
    return this.#all[shardOf(name)]!
  }

  at(index: number): Shard {
    return this.#all[index]!
  }
}

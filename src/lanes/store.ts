/**
 * One store of lanes, as this process reaches it. Nothing is kept here: each method is one script.
 *
 * Everything may be repeated after a lost answer: see the scripts.
 */
import type { Connection } from '../redis/connection.ts'
import type { LaneKeys } from '../redis/keys.ts'
import { runScript, type Script } from '../redis/script.ts'
import type { Clock } from '../runtime/clock.ts'
import {
  type ClaimInput,
  type ClaimReply,
  claimScript,
  type EnterInput,
  type ExtendInput,
  type ExtendReply,
  enterScript,
  extendScript,
  renewScript,
  type SendInput,
  type SendReply,
  type Settlement,
  type SettleReply,
  type StoreInput,
  sendScript,
  settleScript,
} from './scripts.ts'

export interface StoreGround {
  connection: Connection
  /** Only a clock that a test moves says what the scripts take for now. */
  clock: Clock
}

type Own<Input> = Omit<Input, keyof StoreInput>

export class LaneStore {
  readonly keys: LaneKeys
  readonly #ground: StoreGround

  constructor(ground: StoreGround, keys: LaneKeys) {
    this.#ground = ground
    this.keys = keys
  }

  claim(input: Own<ClaimInput>): Promise<ClaimReply> {
    return this.#run(claimScript, input)
  }

  settle(settlements: readonly Settlement[]): Promise<SettleReply> {
    return this.#run(settleScript, { settlements })
  }

  /** Answers the tokens that hold nothing any more. */
  renew(tokens: readonly string[], leaseMs: number): Promise<string[]> {
    return this.#run(renewScript, { tokens, leaseMs })
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

  /** Whoever waited under this name is not woken any more: another one is. */
  async leaveIdle(name: string): Promise<void> {
    await this.#ground.connection.redis.zrem(this.keys.idle, name)
  }

  /** An item as it is held under a token; null when it is not. */
  heldItem(token: string, id: string): Promise<string | null> {
    return this.#ground.connection.redis.hget(this.keys.heldPrefix + token, id)
  }

  #run<Input extends StoreInput, Reply>(script: Script<Input, Reply>, input: Own<Input>): Promise<Reply> {
    return runScript(this.#ground.connection.redis, script, { ...this.ground, ...input } as Input)
  }

  /** What every script of this store is given. */
  get ground(): StoreInput {
    return { keys: this.keys, nowMs: nowMs(this.#ground.clock) }
  }
}

/** What scripts take for now, where a test says so. */
export function nowMs(clock: Clock): number | undefined {
  const us = clock.serverUs?.()
  return us === undefined ? undefined : Math.floor(us / 1000)
}

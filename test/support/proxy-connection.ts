/**
 * One client's connection through the proxy: two pumps, one for commands and one for replies.
 *
 *   open         whole frames pass in both directions, in order
 *   swallowing   commands are executed, nothing more is said to the client
 *   orphaned     the client is gone; commands that the proxy has taken still reach Redis, late
 *   cut          both sides are gone, and with them all that had not been passed on
 *
 * Commands are pipelined as the client sends them. A decision that ends the connection lets every earlier command be
 * answered and no later one be executed, so that it hits exactly the command it was made for.
 */
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { openInbox, write } from './inbox.ts'
import { isPush, wordsOf } from './resp.ts'

export interface Command {
  /** In capitals. */
  name: string
  args: Buffer[]
  /** Number of the command on its connection, from 0. */
  index: number
  /** Number of the command among those of its name, over all connections, from 1. */
  nth: number
  /** Number of the connection, from 0. */
  connection: number
}

/** A command with what it takes to send it again elsewhere. */
export interface SeenCommand extends Command {
  frame: Buffer
  /** The commands that brought the connection into its state: HELLO, AUTH, SELECT. */
  session: readonly Buffer[]
}

export type Decision =
  | 'forward'
  /** Executed by Redis; instead of the reply the client sees its connection end. */
  | 'drop-reply'
  /** Executed by Redis, like all after it; the client gets no answer any more, on a connection that stays open. */
  | 'swallow'
  /** Never reaches Redis; the client sees its connection end. */
  | 'cut-before'
  /** The same as `{ copy: 'after' }`. */
  | 'send-twice'
  /** A copy goes to Redis on another connection and is answered before the original is sent, or before its reply is passed on. */
  | { copy: 'before' | 'after' }
  /** Waits, and all behind it on this connection, this long. */
  | { delayMs: number }
  /** Waits, and all behind it on this connection, for release(); goes to Redis then even if the client is gone. */
  | 'hold'

/** What the connections of a proxy share. */
export interface Rules {
  /** Completes what was read to a command and counts it. */
  seen(command: Omit<SeenCommand, 'nth'>): SeenCommand
  decide(command: SeenCommand): Decision
  /** Lets a frame pass that arrived at this time: waits for the delay and while the proxy is stalled. */
  pass(arrivedAtMs: number): Promise<void>
  hold(command: SeenCommand): Promise<void>
  copy(command: SeenCommand): Promise<unknown>
}

export interface Connection {
  cut(): void
}

type OnReply = (reply: Buffer) => unknown

const sessionCommands = ['HELLO', 'AUTH', 'SELECT']

/** These are answered by pushes, or in RESP2 turn the connection into a stream of messages that is passed on undecided. */
export const hasNoReply = (name: string) => /^[PS]?(UN)?SUBSCRIBE$/.test(name)

export function openConnection(client: Socket, redis: Socket, number: number, rules: Rules): Connection {
  const session = new Map<string, Buffer>()
  const expected: OnReply[] = []
  const gone = new Promise<void>((resolve) => redis.once('close', () => resolve()))
  let allAnswered: Promise<unknown> = Promise.resolve()
  let commandsSeen = 0
  let protocol = 2
  let holding = false
  let swallowing = false
  let cutOff = false

  const commands = openInbox(client, read)
  const replies = openInbox(redis, (frame) => frame)
  // Whatever the error was, the socket closes, and that is what both sides act on.
  for (const socket of [client, redis]) socket.on('error', () => {})
  pumpCommands()
  pumpReplies()
  return { cut }

  function read(frame: Buffer): SeenCommand {
    const [word, ...args] = wordsOf(frame)
    const name = String(word).toUpperCase()
    const command = { name, args, index: commandsSeen, connection: number, frame, session: [...session.values()] }
    commandsSeen += 1
    if (sessionCommands.includes(name)) session.set(name, frame)
    return rules.seen(command)
  }

  async function pumpCommands(): Promise<void> {
    let transparent = false
    for await (const { item: command, atMs } of commands) {
      await rules.pass(atMs)
      if (cutOff) return
      if (command.name === 'HELLO') protocol = Number(command.args[0] ?? protocol)
      await carryOut(transparent ? 'forward' : rules.decide(command), command)
      transparent ||= protocol === 2 && hasNoReply(command.name)
    }
    redis.end()
  }

  async function pumpReplies(): Promise<void> {
    for await (const { item: reply, atMs } of replies) {
      await rules.pass(atMs)
      const onReply = isPush(reply) ? undefined : expected.shift()
      await (onReply ?? answer)(reply)
    }
    client.destroySoon()
  }

  async function carryOut(decision: Decision, command: SeenCommand): Promise<void> {
    if (decision === 'forward') return send(command, answer)
    if (decision === 'cut-before') return cutGently()
    if (decision === 'hold') return sendLate(command)
    if (decision === 'send-twice') return carryOut({ copy: 'after' }, command)
    if (typeof decision === 'object' && 'delayMs' in decision) {
      await sleep(decision.delayMs)
      return send(command, answer)
    }
    if (hasNoReply(command.name)) throw new Error(`${command.name} has no reply of its own to decide on.`)
    if (decision === 'swallow') return send(command, swallow)
    if (decision === 'drop-reply') {
      await send(command, () => {})
      return cutGently()
    }
    return sendWithCopy(command, decision.copy)
  }

  async function send(command: SeenCommand, onReply: OnReply): Promise<void> {
    if (!hasNoReply(command.name)) {
      allAnswered = new Promise<void>((resolve) => {
        expected.push(async (reply) => {
          await onReply(reply)
          resolve()
        })
      })
    }
    await write(redis, command.frame)
  }

  async function sendLate(command: SeenCommand): Promise<void> {
    holding = true
    await rules.hold(command)
    holding = false
    await send(command, answer)
  }

  async function sendWithCopy(command: SeenCommand, when: 'before' | 'after'): Promise<void> {
    if (when === 'before') await rules.copy(command)
    await send(command, async (reply) => {
      if (when === 'after') await rules.copy(command)
      await answer(reply)
    })
  }

  async function answer(reply: Buffer): Promise<void> {
    if (!swallowing) await write(client, reply)
  }

  function swallow(): void {
    swallowing = true
  }

  async function cutGently(): Promise<void> {
    await Promise.race([allAnswered, gone])
    cutOff = true
    client.destroySoon()
    redis.destroy()
  }

  function cut(): void {
    client.destroy()
    if (holding) return
    cutOff = true
    redis.destroy()
  }
}

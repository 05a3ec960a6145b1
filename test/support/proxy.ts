/**
 * A network that misbehaves on command, between a client and Redis.
 *
 * It understands where commands and replies begin and end, so a fault hits exactly the command it is meant for:
 * `onCommand` decides for each, `next` for one; delay, stall, cut and refuse concern all. See Decision for what can be
 * decided. Commands inside MULTI cannot be copied, and CLIENT REPLY and MONITOR are not understood.
 */
import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { write } from './inbox.ts'
import { freePort, loopback } from './ports.ts'
import {
  type Command,
  type Connection,
  type Decision,
  hasNoReply,
  openConnection,
  type Rules,
  type SeenCommand,
} from './proxy-connection.ts'
import { createSplitter, decodeReply, isPush, type Reply } from './resp.ts'

export type { Command, Decision } from './proxy-connection.ts'

export type Target = { port: number } | { socketPath: string }

export interface Copy {
  command: Command
  /** An Error if Redis answered with one, or not at all. */
  reply: Reply
}

export interface RedisProxy {
  readonly port: number
  readonly url: string
  /** Open connections of clients. */
  readonly connections: number
  /** Commands under the decision 'hold', oldest first. */
  readonly held: readonly Command[]
  /** Every copy that was sent, with its reply. */
  readonly copies: readonly Copy[]
  /** How many commands of this name have arrived, whatever became of them. */
  count(name: string): number

  /** Decides what happens to each command from now on; without an argument all are forwarded. */
  onCommand(decide?: (command: Command) => Decision): void
  /** Decides about the next command of this name only, before onCommand is asked. */
  next(name: string, decision: Decision): void
  /** Sends all held commands on their way. */
  release(): void
  /** Sends copies of what clients have sent (all, or those chosen), one after the other, without how they opened their connections. */
  replayLater(choose?: (command: Command) => boolean): Promise<Copy[]>

  /** Every frame takes this much longer, in each direction. 0 ends it. */
  delay(ms: number): void
  /** Forwards nothing in either direction until resume(). */
  stall(): void
  resume(): void
  /** Destroys all connections now. What is held stays in the network until release(). */
  cut(): void
  /** New connections are refused until accept(). */
  refuse(): void
  accept(): Promise<void>
  stop(): Promise<void>
}

export async function startProxy({ target }: { target: Target }): Promise<RedisProxy> {
  const port = await freePort()
  const sockets = new Set<Socket>()
  const clients = new Set<Socket>()
  const connections = new Set<Connection>()
  const decisions = createDecisions()
  const network = createNetwork()
  const holds = createHolds()
  const history = createHistory()
  const copies: Copy[] = []
  let connectionsSeen = 0

  const rules: Rules = {
    seen: history.add,
    decide: decisions.of,
    pass: network.pass,
    hold: holds.add,
    copy: sendCopy,
  }
  let server = await listen(port, attach)

  function attach(client: Socket): void {
    const redis = track(connectTo(target), sockets)
    const connection = openConnection(track(track(client, sockets), clients), redis, connectionsSeen, rules)
    connectionsSeen += 1
    connections.add(connection)
    redis.once('close', () => connections.delete(connection))
  }

  async function sendCopy(command: SeenCommand): Promise<Copy> {
    const copy = { command, reply: await ask(track(connectTo(target), sockets), command) }
    copies.push(copy)
    return copy
  }

  async function replayLater(choose: (command: Command) => boolean = () => true): Promise<Copy[]> {
    const sent: Copy[] = []
    for (const command of history.commands().filter(choose)) sent.push(await sendCopy(command))
    return sent
  }

  return {
    port,
    url: `redis://${loopback}:${port}`,
    get connections() {
      return clients.size
    },
    held: holds.commands,
    copies,
    count: history.count,
    onCommand: decisions.set,
    next: decisions.setNext,
    release: holds.release,
    replayLater,
    delay: network.delay,
    stall: network.stall,
    resume: network.resume,
    cut() {
      for (const connection of connections) connection.cut()
    },
    refuse: () => close(server),
    async accept() {
      close(server)
      server = await listen(port, attach)
    },
    async stop() {
      close(server)
      const closed = [...sockets].map((socket) => new Promise((resolve) => socket.once('close', resolve)))
      for (const socket of sockets) socket.destroy()
      holds.release()
      network.resume()
      await Promise.all(closed)
    },
  }
}

function createDecisions() {
  let decide: (command: Command) => Decision = () => 'forward'
  const once: { name: string; decision: Decision }[] = []
  return {
    set(next: (command: Command) => Decision = () => 'forward'): void {
      decide = next
    },
    setNext(name: string, decision: Decision): void {
      once.push({ name: name.toUpperCase(), decision })
    },
    of(command: Command): Decision {
      const at = once.findIndex(({ name }) => name === command.name)
      return at === -1 ? decide(command) : once.splice(at, 1)[0]!.decision
    },
  }
}

function createNetwork() {
  let delayMs = 0
  let stalled: Promise<void> | undefined
  let letPass = () => {}
  return {
    delay(ms: number): void {
      delayMs = ms
    },
    stall(): void {
      stalled ??= new Promise((resolve) => {
        letPass = resolve
      })
    },
    resume(): void {
      stalled = undefined
      letPass()
    },
    async pass(arrivedAtMs: number): Promise<void> {
      const waitMs = arrivedAtMs + delayMs - performance.now()
      if (delayMs > 0 && waitMs > 0) await sleep(waitMs)
      while (stalled) await stalled
    },
  }
}

function createHolds() {
  const commands: Command[] = []
  let waiting: (() => void)[] = []
  return {
    commands: commands as readonly Command[],
    add(command: Command): Promise<void> {
      commands.push(command)
      return new Promise((resolve) => waiting.push(resolve))
    },
    release(): void {
      for (const resume of waiting) resume()
      waiting = []
      commands.length = 0
    },
  }
}

// Enough for any test that replays, and a bound for those that send for hours.
const maxHistoryBytes = 64 * 1_048_576
const entryOverheadBytes = 256

function createHistory() {
  const commands: SeenCommand[] = []
  const counts = new Map<string, number>()
  let bytes = 0
  const sizeOf = ({ frame }: SeenCommand) => frame.length + entryOverheadBytes
  const canBeRepeated = ({ name }: Command) => !hasNoReply(name) && !/^(HELLO|AUTH|SELECT|CLIENT)$/.test(name)
  return {
    count: (name: string) => counts.get(name.toUpperCase()) ?? 0,
    commands: () => commands.filter(canBeRepeated),
    add(read: Omit<SeenCommand, 'nth'>): SeenCommand {
      const command = { ...read, nth: (counts.get(read.name) ?? 0) + 1 }
      counts.set(command.name, command.nth)
      commands.push(command)
      bytes += sizeOf(command)
      while (bytes > maxHistoryBytes) bytes -= sizeOf(commands.shift()!)
      return command
    },
  }
}

/** The reply to a command, sent on a connection of its own in the state of the command's connection. */
async function ask(socket: Socket, { frame, session }: SeenCommand): Promise<Reply> {
  const split = createSplitter()
  const replies: Buffer[] = []
  const answered = new Promise<Reply>((resolve) => {
    socket.on('error', resolve)
    socket.on('close', () => resolve(new Error('The connection ended before the reply.')))
    socket.on('data', (chunk: Buffer) => {
      replies.push(...split(chunk).filter((reply) => !isPush(reply)))
      const reply = replies[session.length]
      if (reply) resolve(decodeReply(reply))
    })
  })
  await write(socket, Buffer.concat([...session, frame]))
  const reply = await answered
  socket.destroy()
  return reply
}

function connectTo(target: Target): Socket {
  const address = 'port' in target ? { port: target.port, host: loopback } : { path: target.socketPath }
  return connect({ ...address, noDelay: true })
}

function track(socket: Socket, set: Set<Socket>): Socket {
  set.add(socket)
  socket.once('close', () => set.delete(socket))
  return socket
}

async function listen(port: number, attach: (client: Socket) => void): Promise<Server> {
  const server = createServer({ noDelay: true }, attach)
  await once(server.listen(port, loopback), 'listening')
  return server
}

// Takes effect at once; the server's own "close" comes with its last connection, and refusing leaves the open ones alone.
function close(server: Server): void {
  server.close()
}

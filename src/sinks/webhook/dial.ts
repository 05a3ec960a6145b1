/**
 * A connection to one of several addresses that were judged before: no name is looked up here.
 *
 * One after the other, families in turns, as the first may lead nowhere. Who has accepted the connection but does not speak TLS as it should
 * is the receiver: then no other is tried. The address at the other end is judged once more before anything is sent.
 */
import type { LookupAddress } from 'node:dns'
import { connect as connectTcp, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

export interface Dialled {
  protocol: 'http:' | 'https:'
  /** What is dialled: always an IP address. */
  address: string
  port: number
  /** Whose certificate it must be, and what TLS is told; undefined where the URL has an IP address. */
  servername: string | undefined
}

/** Begins to connect. Whoever gives another one sees all that would be dialled. */
export type Dial = (to: Dialled) => Socket

export interface DialTools {
  dial: Dial
  /** What is wrong with the address that was connected to. */
  judge(address: string): Error | undefined
  signal: AbortSignal
}

type Ended = { kind: 'connected'; socket: Socket } | { kind: 'failed'; error: Error; isFinal: boolean }

const mostAddresses = 4
/** For each but the last: of 2 s in all more than half is left for that one. */
const patienceMs = 300

export const dialSocket: Dial = ({ protocol, address, port, servername }) =>
  protocol === 'https:'
    ? // Said although it is the default: the environment could switch it off.
      connectTls({ host: address, port, servername, ALPNProtocols: ['http/1.1'], rejectUnauthorized: true })
    : connectTcp({ host: address, port })

/** Rejects with the last address's error, or the signal's reason. */
export async function dialInTurn(
  addresses: readonly LookupAddress[],
  to: Omit<Dialled, 'address'>,
  tools: DialTools,
): Promise<Socket> {
  const inTurn = alternating(addresses).slice(0, mostAddresses)
  for (let n = 0; ; n += 1) {
    const isLast = n >= inTurn.length - 1
    const ended = await dialOne({ ...to, address: inTurn[n]!.address }, tools, isLast ? undefined : patienceMs)
    if (ended.kind === 'connected') return ended.socket
    if (isLast || ended.isFinal) throw ended.error
  }
}

function alternating(addresses: readonly LookupAddress[]): LookupAddress[] {
  const first = addresses.filter(({ family }) => family === addresses[0]!.family)
  const second = addresses.filter(({ family }) => family !== addresses[0]!.family)
  return first.flatMap((address, at) => [address, ...second.slice(at, at + 1)]).concat(second.slice(first.length))
}

function dialOne(to: Dialled, { dial, judge, signal }: DialTools, patience: number | undefined): Promise<Ended> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve({ kind: 'failed', error: signal.reason, isFinal: true })
    let isAccepted = false
    const socket = dial(to)
    const timer = patience && setTimeout(() => fail(new Error('not connected yet')), patience)
    const stop = () => fail(signal.reason)
    const done = (ended: Ended) => {
      clearTimeout(timer)
      signal.removeEventListener('abort', stop)
      resolve(ended)
    }
    const fail = (error: Error) => {
      socket.destroy()
      done({ kind: 'failed', error, isFinal: isAccepted || signal.aborted })
    }
    signal.addEventListener('abort', stop)
    // Stays: an error before the next one listens would end the process.
    socket.on('error', fail)
    socket.once('close', () => fail(new Error('closed')))
    socket.prependOnceListener('connect', () => {
      isAccepted = true
      clearTimeout(timer)
      const refused = judge(socket.remoteAddress ?? 'nowhere')
      if (refused) fail(refused)
    })
    socket.once(to.protocol === 'https:' ? 'secureConnect' : 'connect', () => done({ kind: 'connected', socket }))
    socket.setNoDelay(true)
  })
}

/**
 * The connection between a user and the keeper: words to the keeper, and its states as JSON, one per line.
 */
import type { Socket } from 'node:net'
import { createInterface } from 'node:readline'

export type KeeperWord =
  | { state: 'contending' | 'idle' | 'starting' | 'stopping' }
  | { state: 'stopped' }
  | { state: 'ready'; shared: boolean }
  | { state: 'failed'; problem: string }
  /** Said by this side: the connection has ended, or nothing came in time. */
  | { state: 'ended' | 'silent' }

type State = KeeperWord['state']
type WordOf<S extends State> = Extract<KeeperWord, { state: S | 'ended' | 'silent' }>

export interface KeeperLine {
  readonly socket: Socket
  say(word: 'hold' | 'release'): void
  /** Passes over other words; the time begins anew with each. */
  hearOneOf<S extends State>(wanted: readonly S[], silenceMs: number): Promise<WordOf<S>>
}

export function openLine(socket: Socket): KeeperLine {
  const heard: KeeperWord[] = []
  let wake = () => {}
  const take = (word: KeeperWord) => {
    heard.push(word)
    wake()
  }
  const lines = createInterface({ input: socket })
  lines.on('line', (line) => take(JSON.parse(line)))
  // Either way it is closed afterwards, and readline passes the socket's errors on.
  lines.on('error', () => {})
  socket.on('error', () => {})
  socket.once('close', () => take({ state: 'ended' }))

  async function hear(silenceMs: number): Promise<KeeperWord> {
    if (heard.length === 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, silenceMs)
        wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    return heard.shift() ?? { state: 'silent' }
  }

  return {
    socket,
    say: (word) => socket.write(`${word}\n`),
    async hearOneOf<S extends State>(wanted: readonly S[], silenceMs: number) {
      const awaited: readonly State[] = [...wanted, 'ended', 'silent']
      for (;;) {
        const word = await hear(silenceMs)
        if (awaited.includes(word.state)) return word as WordOf<S>
      }
    },
  }
}

/**
 * The connection between a user and the keeper: words to the keeper, and its states as JSON, one per line.
 */
import type { Socket } from 'node:net'
import { createInterface } from 'node:readline'

export type KeeperWord =
  | { state: 'starting' }
  | { state: 'ready'; shared: boolean }
  | { state: 'failed'; problem: string }
  | { state: 'stopped' }
  /** Said by this side: the connection has ended, or nothing came in time. */
  | { state: 'ended' | 'silent' }

export interface KeeperLine {
  readonly socket: Socket
  say(word: 'hold' | 'release'): void
  hear(withinMs: number): Promise<KeeperWord>
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

  return {
    socket,
    say: (word) => socket.write(`${word}\n`),
    async hear(withinMs) {
      if (heard.length === 0) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, withinMs)
          wake = () => {
            clearTimeout(timer)
            resolve()
          }
        })
      }
      return heard.shift() ?? { state: 'silent' }
    },
  }
}

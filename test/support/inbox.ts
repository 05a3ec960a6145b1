/**
 * What has arrived on a socket and waits to be passed on, frame by frame.
 *
 * Reading goes on while the frames wait, so that each has the time of its own arrival; it pauses when they are too many,
 * so that a stalled proxy looks like a full network to the sender.
 */
import type { Socket } from 'node:net'
import { createSplitter } from './resp.ts'

export interface Arrived<T> {
  item: T
  atMs: number
}

const maxWaitingBytes = 1_048_576 // far below Redis' 8 MB, at which it begins to cut slow readers

/** The frames of a socket, as `read` sees them on arrival. Ends when the socket is closed and all are taken. */
export function openInbox<T>(socket: Socket, read: (frame: Buffer) => T): AsyncIterable<Arrived<T>> {
  const split = createSplitter()
  const waiting: (Arrived<T> & { bytes: number })[] = []
  let waitingBytes = 0
  let wake = () => {}

  socket.on('data', (chunk: Buffer) => {
    const atMs = performance.now()
    for (const frame of split(chunk)) {
      waiting.push({ item: read(frame), atMs, bytes: frame.length })
      waitingBytes += frame.length
    }
    if (waitingBytes > maxWaitingBytes) socket.pause()
    wake()
  })
  socket.once('close', () => wake())

  async function* take() {
    for (;;) {
      const next = waiting.shift()
      if (next) {
        waitingBytes -= next.bytes
        if (waitingBytes <= maxWaitingBytes) socket.resume()
        yield next
      } else if (socket.closed) return
      else {
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    }
  }
  return take()
}

/** Waits while the receiver does not take more. Not an error if the socket is gone. */
export async function write(socket: Socket, bytes: Buffer): Promise<void> {
  if (!socket.writable || socket.write(bytes)) return
  await new Promise<void>((resolve) => {
    const done = () => {
      socket.off('drain', done)
      socket.off('close', done)
      resolve()
    }
    socket.on('drain', done)
    socket.on('close', done)
  })
}

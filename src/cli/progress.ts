/**
 * One line on the terminal that is drawn over itself while something takes its time. Nothing when nobody would see it:
 * stderr is no terminal, or the answer is JSON.
 */
import { performance } from 'node:perf_hooks'
import type { Io, Output } from './output.ts'
import { shorten } from './printable.ts'

export interface Progress extends Disposable {
  /** Draws the line anew, unless that was a moment ago. */
  update(): void
  /** Takes the line away, so that something else can be written; the next update draws it again. */
  clear(): void
}

const drawMs = 100
const clearLine = '\r\u001b[2K'

export function createProgress({ stderr }: Pick<Io, 'stderr'>, { json }: Output, text: () => string): Progress {
  if (!stderr.isTTY || json) return { update() {}, clear() {}, [Symbol.dispose]() {} }
  let drawnAt = Number.NEGATIVE_INFINITY
  let isDrawn = false

  function update(): void {
    if (performance.now() - drawnAt < drawMs) return
    drawnAt = performance.now()
    isDrawn = true
    stderr.write(clearLine + shorten(text(), (stderr.columns ?? 80) - 1))
  }
  function clear(): void {
    if (isDrawn) stderr.write(clearLine)
    isDrawn = false
    drawnAt = Number.NEGATIVE_INFINITY
  }
  const ticking = setInterval(update, drawMs)
  ticking.unref()
  return {
    update,
    clear,
    [Symbol.dispose]() {
      clearInterval(ticking)
      clear()
    },
  }
}

/** `[#####-----]`, for a share from 0 to 1. */
export function bar(share: number, columns: number): string {
  const done = Math.round(Math.min(1, Math.max(0, share)) * columns)
  return `[${'#'.repeat(done)}${'-'.repeat(columns - done)}]`
}
